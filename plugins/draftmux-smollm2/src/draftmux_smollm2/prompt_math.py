"""Word problems of several steps. Each template carries its answer, so that its numbers can be drawn to make sense."""

from __future__ import annotations

import random

from draftmux_smollm2.prompt_words import Draw, lines

# Behind ‖ stand expressions over the numbers: the steps, the answer last. All must be whole and at least 1.
TEMPLATES = lines("""
<she> {buys|picks up} <a:3-9> boxes of <thing> with <b:6-24> <thing> in each box. She gives <c:5-30> of them to her
  <family> and shares the rest equally among <d:2-6> {friends|classmates}. How many <thing> does each of them get? ‖
  a*b-c; (a*b-c)/d
A {bakery|deli|cafe} sells {sandwiches|bagels|rolls} for $<a:3-9> each and {coffees|teas} for $<b:2-5> each. On <day>
  it sold <c:20-60> of the first and <d:15-80> of the second. If the ingredients cost $<e:40-150/5> that day, how much
  profit did the {shop|owner} make? ‖ a*c+b*d-e
<he> reads <a:10-40> pages on <day> and {twice|two times} as many pages the day after. His book has <b:150-400/10>
  pages. If he wants to finish the remaining pages in <c:3-8> days, how many pages must he read each day? ‖ b-3*a;
  (b-3*a)/c
A train travels at <a:40-90/5> miles per hour for <b:2-5> hours and then at <c:30-80/5> miles per hour for <d:2-4>
  more hours. The whole {route|line} is <e:400-800/10> miles long. How many miles are left? ‖ e-a*b-c*d
<she> earns $<a:12-30> an hour and works <b:20-40> hours a week. She spends $<c:100-300/10> a week on {rent|rent and
  food} and saves the rest. How many weeks does she need to save at least $<=d*(a*b-c)>?<!d:3-12> ‖ a*b-c; d
There are <a:3-8> shelves in {a library|a classroom|an office}, and each shelf holds <b:12-40> books. <c:5-60> books
  are borrowed on <day> and <d:2-30> are returned the next day. How many books are on the shelves now? ‖ a*b-c;
  a*b-c+d
<he> is <a:4-12> years older than his <family>. In <b:2-10> years the sum of their ages will be <c:40-90>. How old is
  <he> now? ‖ (c-2*b-a)/2; (c-2*b-a)/2+a
A farmer has <a:10-40> chickens that each lay <b:4-6> eggs a week. {He|She} keeps <c:10-30> eggs for the family and
  packs the rest in cartons of <d:6-12/6>. How many full cartons are there each week? ‖ a*b-c; (a*b-c)/d
A water tank holds <a:200-900/50> {liters|gallons}. A pump fills it at <b:10-30/5> per minute while a leak loses
  <c:2-8> per minute. How many minutes does it take to fill the empty tank? ‖ b-c; a/(b-c)
<she> and <he> {collect|save up} <thing>. <she> has <a:3-7> times as many as <he>, and together they have <=b*(a+1)>.
  After <she> gives <c:4-25> to <he>, how many <thing> does she have? <!b:12-40>‖ b; a*b-c
A cinema has <a:12-30> rows with <b:10-24> seats each. For the <day> show, <c:40-200> seats stay empty. A ticket costs
  $<d:6-14>. How much money does the cinema take for that show? ‖ a*b-c; (a*b-c)*d
A recipe for <food> needs <a:2-6> cups of flour for <b:4-12> people. <person> wants to make it for <=b*c> people and
  already has <d:3-10> cups. How many more cups are needed? <!c:2-6>‖ a*c-d
<he> runs <a:3-9> miles every weekday and <b:5-14> miles on each day of the weekend. How many miles does he run in
  <c:2-8> weeks? ‖ (5*a+2*b)*c
A {shirt|jacket|pair of shoes|backpack|lamp} costs $<a:40-200/20>. In the {spring|summer|winter} sale its price falls
  by <b:10-50/5> percent, and <she> has a coupon for another $<c:2-10>. How much does she pay? ‖ a*b/100; a-a*b/100-c
The {garden|field|playground} of a school is a rectangle <a:12-60> meters long and <b:8-40> meters wide. A fence
  around it costs $<c:5-20> per meter, and the gate costs $<d:50-200/10> more. What is the total cost? ‖ 2*(a+b)*c+d
<she> has $<a:50-200/10>. She buys <b:2-6> {notebooks|plants|posters} at $<c:3-9> each and <d:2-5> {pens|mugs|books}
  at $<e:4-12> each. How much money does she have left? ‖ a-b*c-d*e
In a class of <a:20-40> students, <b:20-80/10> percent {play an instrument|walk to school|are in a sports club}. Half
  of those also {sing in the choir|study a second language}. How many students do both? ‖ a*b/100; a*b/200
A {bus|tram} starts with <a:12-40> passengers. At the first stop <b:3-12> get off and <c:2-15> get on. At the second
  stop half of the passengers get off. How many are still {on board|riding}? ‖ a-b; (a-b+c)/2
<he> plants <a:4-12> rows of {carrots|lettuce|beans} with <b:8-20> plants in each row. <c:10-25/5> percent of the
  plants do not grow, and rabbits eat <d:3-12> more. How many plants are left? ‖ a*b*c/100; a*b-a*b*c/100-d
A factory makes <a:40-150/10> {lamps|chairs|toys} per hour and runs <b:6-10> hours a day. <c:2-10> percent turn out
  faulty and are thrown away. How many good ones does it make in <d:2-5> days? ‖ a*b*d*c/100; a*b*d-a*b*d*c/100
<she> swims <a:10-30> laps on Monday. Every day after that she swims <b:2-5> laps more than the day before. How many
  laps has she swum in total by the end of <c:3-6> days? ‖ a*c+b*c*(c-1)/2
A truck carries <a:20-60> crates of <b:10-40> pounds each and <c:5-20> barrels of <d:30-90/5> pounds each. A bridge
  allows a load of <e:1500-5000/100> pounds. How many more pounds could it carry across? ‖ e-a*b-c*d
<he> buys <a:2-6> <pack>s of <colour> <thing> and <b:3-7> <pack>s of <colour2> ones. A <colour> <pack> holds <c:8-20>,
  a <colour2> one holds <d:5-15>. How many more <colour> <thing> than <colour2> ones does he have? ‖ a*c-b*d
A phone plan costs $<a:15-40> a month and $<b:2-6> for each gigabyte above <c:3-8> gigabytes. <she> uses <d:8-20>
  gigabytes in <month>. What does she pay for that month? ‖ d-c; a+b*(d-c)
<a:3-8> friends {rent a cabin|hire a boat|book a cottage} for <b:2-6> nights at $<c:60-180/10> a night and spend
  $<d:40-200/10> on food. If they split everything equally, how much does each friend pay? ‖ b*c+d; (b*c+d)/a
<she> knits a scarf that should be <a:120-200/10> centimeters long. She knits <b:8-15> centimeters a day for <c:3-7>
  days, then unravels <d:4-12> centimeters because of a mistake. How many centimeters are missing? ‖ b*c-d; a-b*c+d
A parking garage charges $<a:3-8> for the first hour and $<b:2-5> for each hour after that. <he> parked for <c:3-9>
  hours and paid with a $<d:20-50/10> bill. How much change did he get? ‖ a+b*(c-1); d-a-b*(c-1)
A zoo has <a:3-9> times as many monkeys as lions and <b:4-20> more birds than monkeys. There are <c:3-9> lions. How
  many of these animals live there altogether? ‖ c+a*c+a*c+b
<he> can paint a fence in <a:3-14> hours, and his <family> needs twice as long. If they paint together for <=2*a*b>
  hours on fences of that size, how many fences do they finish?<!b:1-4> ‖ 3*b
A school orders <a:200-600/20> {bottles of water|cartons of milk|bananas} for <b:4-8> days. On the first day the
  children take <c:40-90>. If the rest is spread evenly over the other days, how many are there per day? ‖ a-c;
  (a-c)/(b-1)
The sum of three numbers is <=3*a+b+c>. The second is <b:2-15> more than the first, and the third is <c:3-20> more
  than the first. <!a:4-40>What is the third number? ‖ a; a+c
<she> has <a:5-20> coins worth <b:5-25/5> cents each and <c:4-15> coins worth 10 cents each. A {comic|snack|ticket}
  costs <d:60-150/10> cents. How many cents does she have left after buying one? ‖ a*b+10*c-d
Two {cyclists|hikers|canoes} start <=(a+b)*c> {miles|kilometers} apart and move toward each other, one at <a:4-15> and
  the other at <b:3-14> per hour. <!c:2-6>After how many hours do they meet? ‖ c
<he> sells <a:15-60> {cups of lemonade|paper planes|handmade cards} at $<b:2-5> each. His materials cost $<c:10-40>,
  and he gives a third of his profit to charity. How much does he keep? ‖ (a*b-c)/3; 2*(a*b-c)/3
In a {game|quiz}, a right answer is worth <a:4-10> points and a wrong answer costs <b:2-4> points. <person> answers
  <c:15-30> questions and gets <d:2-9> of them wrong. What is the final score? ‖ (c-d)*a-d*b
A box of <thing> weighs <a:20-60> ounces when full. After half of the <thing> are taken out, it weighs <b:12-40>
  ounces. How many ounces does the empty box weigh? ‖ a-b; 2*b-a
<she> walks <a:4-9> dogs every day and gets $<b:3-8> per dog. On weekends she gets $<c:2-4> more for each dog. How
  much does she earn in a {whole|full} week? ‖ 5*a*b+2*a*(b+c)
A hotel has <a:4-12> floors with <b:8-20> rooms each. On <day>, three quarters of the rooms are taken, and <c:3-15> of
  the free rooms are being cleaned. How many rooms can still be booked? ‖ a*b/4; a*b/4-c
<person> has <a:60-200> {photos|songs|recipes} and {adds|stores} <b:5-15> new ones every week, but deletes <c:1-4> a
  week. How many are there after <d:4-12> weeks? ‖ b-c; a+d*(b-c)
A {printer|copier} prints <a:15-40> pages a minute. It has to print <b:3-9> reports of <c:20-60> pages each and stops
  for <d:2-10> minutes for new paper. How many minutes does the job take? ‖ b*c/a; b*c/a+d
<he> is saving for a {bicycle|camera|guitar|tent} that costs $<a:150-600/10>. He has $<b:20-90>, gets $<c:10-40> from
  his <family> and saves $<d:8-25> every week. After how many weeks can he buy it? ‖ a-b-c; (a-b-c)/d
A {pond|aquarium} has <a:10-40> fish. Every month the number grows by <b:4-12>, and <c:2-4> are given away. How many
  months does it take until there are <=a+d*(b-c)> fish? <!d:3-12>‖ b-c; d
Each of the <a:4-12> tables at a wedding seats <b:6-10> guests. <c:10-40> guests are children, and one adult in every
  <d:2-5> drives home. How many drivers are there if every seat is taken? ‖ a*b-c; (a*b-c)/d
A {baker|cook} uses <a:2-6> kilograms of flour on each of <b:3-6> days and <c:4-9> kilograms on <day>. Flour comes in
  bags of <d:2-5> kilograms at $<e:3-8> each. How much do all the bags cost? ‖ (a*b+c)/d; (a*b+c)/d*e
The price of a {concert|museum|theater} ticket is $<a:8-20> for adults and half of that for children. A group of
  <b:3-12> adults and <c:4-20> children pays with $<d:200-500/50>. How much money is left? ‖ a/2; d-a*b-c*a/2
""")

_POOLS = {"pack": ("pack", "bag", "jar", "set")}
_ENDINGS = (
    "",
    "",
    "",
    "",
    " Show your work.",
    " Explain each step.",
    " Think step by step.",
    " Give the final number.",
)


def math(rng: random.Random) -> str:
    """A word problem; its answer and the steps to it are whole numbers of at least 1."""
    template, _, steps = rng.choice(TEMPLATES).partition("‖")
    while True:
        draw = Draw(rng, _POOLS)
        text = draw.fill(template)
        values = [eval(step, {"__builtins__": {}}, draw.numbers) for step in steps.split(";")]
        if all(value >= 1 and value == int(value) for value in values):
            return " ".join(text.split()) + rng.choice(_ENDINGS)
