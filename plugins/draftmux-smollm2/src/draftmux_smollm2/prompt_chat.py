"""Everyday questions and tasks: explaining, writing, planning, advice, extraction, classification, correction,
puzzles."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from draftmux_smollm2.prompt_news import article
from draftmux_smollm2.prompt_words import WORDS, Draw, lines, pool

POOLS: Mapping[str, Sequence[str]] = {
    "topic": ["<science>", "<tech>", "<economics>", "<history>", "<abstract>"],
    "theme": pool("""
        autumn, the sea, a lost letter, an old clock, moonlight, a rainy morning, friendship, a train journey, home,
        a forgotten garden, the first snow, a lighthouse, the desert, growing up, a city at night, silence, a river,
        hope, a broken mirror, summer holidays, a grandmother's kitchen, the stars, time, a mountain path"""),
    "hero": lines("""
a shy <animal>
a brave young <job>
a robot that wants to learn <hobby>
a clever <animal>
two siblings from <town>
a retired <job>
a lonely dragon
a <job> who loves <hobby>
a girl named <she>
a boy named <he>
a talking <animal>
a ghost who is afraid of the dark
"""),
    "quest": pool("""
        finds a hidden door, loses a map, must cross a wide river, discovers an old secret, makes an unlikely
        friend, wins a strange contest, wakes up in another century, repairs a broken promise, follows a mysterious
        light, gets a message from the future, saves a small village, learns to ask for help, opens a tiny shop,
        misses the last train, hears a voice in the wall"""),
    "event": pool("""
        birthday party, team meeting, school fair, wedding, book club evening, charity run, job interview, company
        picnic, science fair, farewell party, neighborhood cleanup, cooking class, photo exhibition, family reunion,
        music recital, product launch, training day"""),
    "goal": pool("""
        sleep better, save money, wake up earlier, eat healthier, learn <hobby>, read more books, drink more water,
        remember names, reduce screen time, become more organized, make new friends, improve my handwriting, speak
        in public, exercise regularly, learn a new language, stop procrastinating, manage stress, focus while
        studying, write faster, cook at home more often, keep houseplants alive, find a new job, ask for a raise"""),
    "thing_a": pool("""
        tea, renting a home, trains, city life, working from home, cats, paper books, public schools, solar power, a
        laptop, running, summer, online courses, electric cars, a vegetarian diet, small companies, owning a
        bicycle, morning workouts"""),
    "thing_b": pool("""
        coffee, buying a home, planes, country life, working in an office, dogs, e-books, private schools, wind
        power, a tablet, swimming, winter, evening classes, gasoline cars, a diet with meat, large companies, using
        the bus, evening workouts"""),
    "policy": pool("""
        school uniforms, a four-day work week, free public transport, homework in primary school, banning cars from
        city centers, a universal basic income, zoos, remote work, social media for teenagers, plastic bag bans,
        later school starts, space exploration, self-checkout machines, tipping in restaurants, video games in
        class, nuclear energy, daylight saving time, open-plan offices"""),
    "tongue": pool("French, Spanish, German, Italian, Portuguese"),
    "simple": lines("""
Where is the {nearest|next} <spot>?
My <family> {works as a|is a} <job> in <city>.
I would like {a cup of tea|two tickets to <city>|some <food>}, please.
We {arrived|left} on <day> {morning|evening} and it was {raining|very hot}.
The <animal> is {sleeping|hiding} under the {table|tree|bed}.
Could you help me {find my keys|carry this bag|with my homework}?
She has been learning <hobby> for <a:2-9> years.
{What time does the {train|bus} leave|When does the museum open} on <day>?
I forgot my {umbrella|phone|passport} at the <spot>.
Tomorrow we are going to {visit our friends|travel to <country>|buy a new lamp}.
"""),
    "spot": pool("station, hospital, pharmacy, library, restaurant, post office, bank, supermarket, hotel, airport"),
    "wrong": lines("""
she don't like <food> because it {taste|are} too {salty|sweet}
{Me|Him} and <he> was going to the <spot> when it start to rain.
Their going to {by|buyed} a new car {to|too} replace there old one.
I have went to <city> {to|too} times last year and i loved {they're|there} food.
The <animal>s was runing {quick|very fastly} across the {feild|streat}.
If I would have knew about the <event>, I will have came.
He {teached|learned} me <hobby> since <a:3-9> years.
Yesterday we {eat|eated} <food> and than {goes|go} home.
Each of the students have {there|they're} own desk, its very {comfortabel|usefull}.
There is less people in <town> then last {yaer|summer}, {isnt|arent} it?
My <family> {dont|doesnt} no {weather|wether} {she|he} can come {too|to} the <event>.
"""),
    "clumsy": lines("""
Due to the fact that it was raining, the <event> was moved to a place that was indoors.
hey, the <product> i got from you guys is broken, send me a new one asap
I am writing to you for the reason that I want to ask whether the <event> is still happening on <day>.
The thing about <hobby> is that it is a thing that many people find to be relaxing for them.
We had a meeting and in the meeting we talked about the <event> and then we decided that we would decide later.
can't come to the <event> on <day>, sorry, something came up, talk later
At this point in time, our <place> is not in a position to be able to offer refunds.
"""),
    "review": lines("""
The <product> arrived {late|two days early} and {works perfectly|broke after a week}. {I love it.|I want my money
  back.|It is okay for the price.}
{Friendly staff|Rude staff} at the <place> in <town>, but the {waiting time was long|prices are fair|rooms were cold}.
I bought this <product> for my <family>, who {uses it every day|never uses it|found it {too heavy|confusing}}.
{Best|Worst} <place> I have ever been to. The <food> was {cold|wonderful|bland}.
Not what I expected from a <product>, {yet I would buy it again|and I will not order here again|though the color is
  nice}.
"""),
    "message": lines("""
My <product> stopped working after <a:2-20> days. How do I send it back?
When does your <place> open on <day>?
I was charged $<a:10-90> twice for the same {order|ticket}.
Thank you for the quick help with my <product>, {<she>|<he>} was great!
I cannot log in to my account since <day>. The {password|code} does not arrive.
Do you also {sell|deliver} to <country>?
"""),
    "record": lines("""
<person> <surname>, <a:21-79>, works as a <job> in <city> and can be reached at <b:201-989>-555-0<c:100-199>.
Order <d:1000-9999>: <e:2-9> <product>s at $<f:10-80> each, to be delivered to <person> <surname> in <town> on <day>.
The <event> takes place on <month> <g:1-28> at <h:1-9> pm in the {school hall|town hall|park}, hosted by <person>
  <surname>. Tickets are $<f:3-25>.
Flight <i:100-990> from <city> to <city2> leaves on <day> at <j:6-11>:<k:10-55/5> am from gate <l:2-40>.
<company> was founded in <m:1950-2015> by <person> <surname>, has <n:40-900/10> employees and is based in <city>.
For sale: <colour> bicycle, <a:2-15> years old, $<f:40-300/10>, {good|fair} condition. Call <person> in <town> after
  <h:4-8> pm.
Patient <person> <surname>, <a:18-90> years old, came on <day> with {a cough|a sprained ankle|a headache} and was told
  to rest for <e:2-9> days.
"""),
    "trait": pool("taller, older, faster, stronger, quieter"),
    "fruit": pool("apple, pear, mango, banana, cherry, fig, peach, plum"),
    "role": lines("""
a {friendly|strict} <job>
a travel guide in <city>
a medieval {knight|merchant}
a pirate captain
a wise old <animal>
a detective
a sports coach
an alien who visits Earth
a time traveler from {1850|the year 2300}
<figure>
a chef from <country>
a grandparent
"""),
    "form": pool("poem, haiku, limerick, song text, short rhyme, sonnet, free-verse poem, four-line poem"),
    "tone": pool("{polite|formal}, friendly, funny, short, warm, professional, convincing, cheerful, thoughtful"),
    "audience": pool("""
        a five-year-old, a ten-year-old, a high school student, a beginner, my grandmother, a curious adult, a
        college freshman, someone without any background in it"""),
    "request": lines("""
ask for a day off on <day>
invite a colleague to a <event>
complain about a broken <product>
thank <person> for help with the <event>
apologize for missing the <event>
cancel a subscription
ask a professor for more time
welcome a new <job> to the team
ask the landlord to repair the heating
follow up after an interview for a job as a <job>
remind the team of the <event> on <day>
recommend <person> for a job as a <job>
ask a <place> about its opening hours
decline an invitation to a <event>
"""),
}

_KNOWN = [entry for key in ("science", "tech", "economics", "abstract") for entry in WORDS[key]]
_PLURAL = [entry for entry in _KNOWN if entry.endswith("s") and not entry.endswith(("is", "ss", "us", "GPS"))]
_ALL = {**POOLS, "things": _PLURAL, "concept": [entry for entry in _KNOWN if entry not in _PLURAL]}

TEMPLATES = lines("""
{Explain|Can you explain} <topic> {to|in a way that works for} <audience>.
What is <concept>{?| in simple terms?| and why does it matter?}
Explain <topic> {in simple terms|in two sentences|with an everyday example|in one paragraph}.
What are <things>{?| in simple terms?| and why do they matter?}
{Describe|Explain} how people use <tech>{.| today.| at home and at work.}
How does <concept> work{?|, step by step?| and what is it good for?}
Explain the importance of <topic> {for everyday life|in the modern world|with three examples}.
What are {three|four|five} {common misunderstandings about|interesting facts about|key ideas behind} <topic>?
What are the advantages and disadvantages of <tech>?
Tell me about <history> {in a short paragraph|in a timeline|and its effects}.
What were the main {effects|causes and effects} of <history>?
Who was <figure>{?| and why is this person remembered?| and what can we learn from them today?}
Write a {short biography|quiz with <a:3-8> questions|paragraph} about <figure>.
Imagine a conversation between <figure> and <figure2> about <topic>. {Write it down.|Keep it under <z:8-20> lines.}
Write a <tone> email to <request>.
Write a <tone> {message|note|letter} to <request>. {Sign it as <person>.|Keep it under <z:50-150/10> words.|Use simple
  words.}
Write a short story about <hero> who <quest>.
Write {the opening|the ending|a summary} of a {mystery|fantasy|science fiction|romance|children's} story in which
  <hero> <quest>.
Tell me a {bedtime|funny|scary|sad} story about <hero>{.| in about <z:100-300/50> words.| with a surprising end.}
Write a <form> about <theme>.
Write a <form> about <animal>s and <theme>.
Write a {blog post|newsletter article|short essay} about <hobby> {for beginners|for busy people|and why it is good for
  the mind}.
Write an essay about <abstract> {and <abstract2>|in {school|sports|the workplace}}. {Use three paragraphs.|Give
  examples.|Keep it short.}
Write a product description for a <product> {for an online shop|aimed at students|in a <tone> style}.
Come up with {five|six|ten} {slogans|names} for a {new|small} <place> {in <town>|that sells <food>|near the sea}.
Give me {a list of|} <a:4-12> ideas for a <event> {with a small budget|for <b:10-60> people|with children|in <month>}.
Make a {checklist|schedule|to-do list} for a <event>{.| on <day>.| with <b:10-80> guests.}
Plan a {weekend|three-day trip|one-week trip} to <city> for {a family with children|a couple|a student on a
  budget|someone who loves <hobby>}.
What should I {see|eat|pack} when I visit <country> in <month>?
What is the capital of <country> and what is {it known for|the weather like there}?
Tell me about the {geography|culture|food|history|languages|climate} of <country>.
Compare <country> and <country2> in terms of {climate|food|size and population|history|tourism}.
How do I make <food>{?| for <a:2-12> people?| without an oven?| in under <b:20-60/5> minutes?}
Give me a recipe for <food> {with a list of ingredients|that children like|in numbered steps}.
What can I cook with <food> left over from yesterday and {a few eggs|some rice|two potatoes|an onion}?
Make a {meal plan|shopping list} for {three days|a week} that includes <food> and <food2>.
How can I <goal>{?| in <a:2-8> weeks?| without spending money?| as a busy <job>?}
Give me {three|five|seven} tips to help me <goal>.
Make a {30-day|weekly|daily} plan to <goal>.
I am a <job> and want to get better at <hobby>. {Where should I start?|What do you suggest?|How much time do I need
  each week?}
My <family> is {angry with me|worried} because I forgot the <event>. What should I {say|do}?
I have to choose between a job as a <job> in <city> and one as a <job2> in <city2>. {How should I decide?|What should
  I ask myself?}
What does a <job> do all day{?| and what training is needed?| and which skills matter most?}
Write {interview questions|a job advertisement|a cover letter} for a <job>{.| in <city>.| with <a:2-10> years of
  experience.}
What are the pros and cons of <policy>?
Write a {short speech|letter to the editor|paragraph} {for|against} <policy>.
Should we {have|support} <policy>? {Give both sides.|Give your opinion with reasons.|Answer in three sentences.}
Which is better, <thing_a> or <thing_b>? {Explain.|Make a table.|List points for both.}
Compare <tech> and <tech2>{.| in a table.| for someone who has heard of neither.}
Compare <animal>s and <animal2>s {as pets|in a table|in terms of intelligence|in terms of diet|in terms of habitat}.
{How long do <animal>s live|Where do <animal>s live|What do <animal>s eat|How do <animal>s raise their young}? {Answer
  briefly.|Give details.|Explain it to a child.}
Give me {three|five} {surprising|fun} facts about <animal>s{.| and <animal2>s.| that children would like.}
{Pretend you are|You are|Act as} <role>. {Introduce yourself.|Tell me about your day.|Give me advice on how to
  <goal>.|Explain <topic> to me.}
You are <role>. I am a customer of a <place>. {Start the conversation.|Greet me and ask what I need.|Sell me a
  <product>.}
Write a dialogue between <role> and <role2> {about <topic>|who meet at a <event>|in an elevator}.
Turn this text into JSON: <record>
Extract {all names and numbers|the person, the place and the time|the most important facts} from the text as {JSON|a
  list|a table}. Text: <record>
<record> {Answer with JSON that has one key per fact.|List the facts as key: value lines.|Write this as a polite
  sentence.}
Is the following review positive, negative or {neutral|mixed}? "<review>"
Classify the sentiment of this review {in one word|and explain why}: <review>
Put this customer message into one of the groups billing, returns, technical, praise or other: "<message>"
Write a <tone> reply to this customer: "<message>"
Write a reply from the owner of the <place> to this review: "<review>"
Correct the grammar: <wrong>
Fix the {mistakes|spelling and grammar} in this sentence and explain {them|the changes}: "<wrong>"
Rewrite this {more politely|in a professional tone|in fewer words|for a friend}: <clumsy>
Translate into <tongue>: "<simple>"
How do you say "<simple>" in <tongue>? {Explain each word.|Also give the pronunciation.|}
Translate these sentences into <tongue>: 1. <simple> 2. <simple2>
What is a synonym for {happy|difficult|important|quick|beautiful|tired|strange|angry|calm|clever}? Use it in a
  sentence about <theme>.
Use the words <animal>, <fruit> and <colour> in {one sentence|a short story|a riddle}.
Write a riddle {whose answer is|about} {a|the} <fruit>{.| with a hint.| in rhyme.}
<she> is <trait> than <he>, and <he> is <trait> than <she2>. {Who is not <trait> than anybody?|What can we say about
  <she> and <she2>?}
<he> has a <fruit>, <she> has a <fruit2>, and <he2> has a <fruit3>. <he> trades with <she>, then <she> trades with
  <he2>. Who has the <fruit>?
A <colour>, a <colour2> and a <colour3> box stand in a row. The <colour> box is not first, and the <colour2> box is
  last. {Which box is first?|In which order do they stand?}
All <animal>s in a story can {sing|swim|fly}. <person> is {a|not a} <animal>. {Can <person> do that too?|What
  follows?} Explain your reasoning.
If it takes <a:3-9> {machines|people} <a:3-9> minutes to make <a:3-9> {toys|cups}, how long do <b:20-90/10> of them
  need for <b:20-90/10>?
Today is <day>. What day of the week will it be in <a:8-60> days?
Which one does not belong: <fruit>, <fruit2>, <animal>, <fruit3>? {Why?|Explain.}
Sort these {words alphabetically|words by length}: <fruit>, <animal>, <colour>, <animal2>, <fruit2>
{Suggest|Recommend} {three books|two films|five podcasts} for someone who likes <history> and <hobby>.
What {equipment|gear|skills} do I need for <hobby>{?| on a small budget?| at home?}
Write {multiple-choice questions|flash cards|a lesson plan} about <topic> for {grade <a:4-12>|beginners}.
Write a {tweet|short post|headline} announcing {a new <product>|a <event> in <town>|the opening of a <place>}.
Write a business plan outline for a <place> in <city>.
Summarize what {you know|most people should know} about <topic> in {three bullet points|one sentence|<a:40-90/10>
  words}.
What would happen if {there were no <animal>s|everybody took up <hobby>|we had never discovered <tech>}?
What is the {origin|meaning} of {the word <animal>|the name <person>|the saying "time flies"|the saying "break the
  ice"}?
Give me a {metaphor|simile|definition|quote} for <abstract> {and explain it|that a child understands|for a speech at a
  <event>}.
""")


_READING = lines("""
Write a headline for this article.
Which people are named in this text, and what is said about each of them?
List all numbers in the text and what they stand for.
Write three questions that a reader of this text could answer.
Is this text about business, sports, science, politics or something else? Explain your choice.
Rewrite this text so that a ten-year-old understands it.
Turn this article into a JSON object with the keys who, what, when and where.
Write a short reply to this article from the view of a reader who disagrees.
""")


def chat(rng: random.Random) -> str:
    """One open question or task; a few are about a whole article."""
    if rng.random() < 0.05:
        return f"{rng.choice(_READING)}\n\n{article(rng)}"
    return " ".join(Draw(rng, _ALL).fill(rng.choice(TEMPLATES)).split())
