"""The sentences of invented news articles, topic by topic. No person, company or town in them is real."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from draftmux_smollm2.prompt_words import lines, pool

# The first two lines of a topic are openings. Lines marked 1> or 2> fit only one of them; their order is kept.
TOPICS: Mapping[str, Sequence[str]] = {
    "town": lines("""
{Residents|People} of <town> will get a new <building> after the town council voted <a:5-9> to <b:1-4> on <day> to
  spend $<c:2-40> million on the project.
The council of <town> has {approved|agreed on} plans for a <building> on <street>, ending {a debate|an argument} that
  had lasted for <d:2-9> years.
The {old|current} <building>, built in <e:1920-1985>, has been closed since a pipe burst there two winters ago.
Work is expected to start in <month> and to take about <f:10-30> months, according to a report that the town published
  this week.
Part of the money, some $<g:1-9> million, will come from a state fund for small communities, and the rest from a bond
  that voters accepted last year.
Opponents had argued that the plan would bring too much traffic to <street>, where <h:200-900/10> families live.
"We have {waited long enough|talked about this for years}," said Mayor <person> <surname>. "{Our children deserve a
  place like this|It is time to build}."
Shop owner <person2> <surname2>, who has run a {bakery|bookstore|hardware store} nearby for <i:8-40> years, said that
  every lost parking space would hurt.
An earlier design was {rejected|withdrawn} after architects found that the ground was too soft for a building of
  <j:3-6> floors.
The new design is <k:10-30> percent smaller and keeps the row of {oak|maple|chestnut} trees that many residents wanted
  to protect.
A group of {volunteers|students} collected <l:1200-4800/50> signatures in support of the project and handed them to
  the council in <month2>.
The <building> will be heated with {geothermal energy|waste heat from a nearby factory}, which should save around
  $<m:20-90>,000 a year.
During construction, the weekly market will move to the {parking lot of the station|school yard}.
The council will {choose|name} a builder by the end of <month3>, and a public tour of the site is planned for the same
  week.
"""),
    "business": lines("""
<company> said on <day> that it will {close|sell} its plant in <town> and move production to <town2>, a step that
  affects <a:120-900/10> workers.
Shares of <company> {rose|fell} by <b:3-18> percent on <day> after the company reported {a surprising profit|weaker
  sales than expected} for the last three months.
2>Costs for {fuel|raw materials} rose by <y:4-20> percent, while the number of orders hardly changed.
2>Revenue came to $<c:110-980/10> million, compared with $<d:100-900/10> million in the same quarter a year earlier.
The company makes {packaging machines|electric motors|frozen meals|medical devices|garden tools} and sells them in
  <e:12-60> countries.
Chief executive <person> <surname> blamed {higher prices for steel and energy|delays at two ports|a weak market at
  home} for the change.
1>"This was {not an easy decision|the hardest choice of my career}," <surname> told reporters. "{But waiting would
  have made things worse|We owe our customers a company that lasts}."
1>The union that represents the workers called the plan {a shock|irresponsible} and demanded talks before the end of
  <month>.
1>Workers with more than <f:5-15> years at the company will be offered {early retirement|retraining}, a spokesperson
  said.
Analyst <person2> <surname2> of the research firm Harbor & Finch said the market had expected {much less|a step of
  this kind} since the spring.
A rival, <company2>, has {opened|announced} two new {factories|warehouses} over the past year and now holds <g:15-40>
  percent of the market.
<company> was founded in <h:1920-1995> by two {brothers|engineers|school friends} who began by repairing
  {radios|bicycles|tractors} in a garage.
The company still plans to hire <i:40-200/10> {engineers|software developers} at its headquarters.
1>The local chamber of commerce estimates that {another|a further} <j:50-300/10> jobs at suppliers depend on the
  plant.
For the full year, <company> expects sales to {grow|shrink} by between <k:1-4> and <l:5-9> percent.
"""),
    "science": lines("""
Researchers at the University of <town> have {found|shown} that <finding>, according to a study published on <day>.
A team led by {biologist|physicist|ecologist} <person> <surname> reports that <finding>, a result that surprised even
  the authors.
The scientists {followed|observed} <a:120-950/10> {animals|sites|samples} in <b:3-14> countries over a period of
  <c:2-12> years.
They used {small sensors|satellite images|a new kind of microscope} that can record changes every <d:5-50/5> seconds.
Earlier studies had come to {mixed|different} conclusions, mostly because they were limited to short periods in the
  summer.
"At first we thought {our instruments were broken|someone had made a mistake}," said <surname>. "{We repeated the
  measurement four times|Then the second data set showed the same}."
The effect was strongest in {young animals|warm years|coastal areas}, where the values were <e:15-70> percent above
  the average.
<person2> <surname2>, who studies the same question at an institute in <town2> and was not part of the team, called
  the work {careful|convincing}.
<surname2> warned, however, that the sample from the south was too small to draw firm conclusions.
The work was paid for by a public research council, which spent about $<f:1-9> million on the project.
One possible explanation is that {temperature|light|food} changes faster than the {animals|plants} can adapt.
If the result holds, it could help {farmers|city planners|conservation groups} to react earlier.
The data have been made public so that other groups can check the analysis.
Next year, the team wants to repeat the study at <g:12-60> {lakes|forests|stations} on another continent.
"""),
    "sport": lines("""
The {visiting |}<town> <club> beat the <town2> <club2> <a:3-5> to <b:0-2> on <day> {in front of|before}
  <c:4000-28000/100> spectators and moved up to {second|third|fourth} place.
A late goal by <person> <surname> gave the <town> <club> a <a:2-4> to <b:0-1> win over the <town2> <club2> on <day>.
<surname>, <d:18-35>, scored {twice in the first half|in the opening minutes and again shortly before the end} and
  left the field to loud applause.
The home side had lost <e:3-6> games in a row and was without its captain, who {hurt a knee|broke a finger} in
  training.
Coach <person2> <surname2> had changed the {defense|lineup} in <f:3-5> positions after last week's defeat.
"{We played without fear today|The team never stopped running}," <surname2> said. "{That is all I asked for|I could
  not be prouder}."
The <club2> had the better chances early on but hit the post in the <g:12-40>th minute and then missed a penalty.
Heavy rain made the grass slippery, and the referee stopped the game for <h:10-30> minutes after the break.
Goalkeeper <person3> <surname3> made <i:5-12> saves, among them one with {a foot|one hand} in the final seconds.
The club had signed the young {forward|midfielder} for only $<j:100-900/50>,000 two summers ago.
It was the first win of the <club> in <town2> since <k:1985-2015>.
Some <l:300-2000/100> fans had travelled to the game in special trains and sang until long after the end.
The <club> play the league leaders next <day2>, while the <club2> have a week of rest.
Tickets for the last home game of the season go on sale on the first of <month>.
"""),
    "weather": lines("""
A {storm|blizzard|heavy thunderstorm} that swept across the <region> on <day> left <a:12-90>,000 homes without power
  and closed schools in <b:4-20> towns.
Rivers in the <region> {burst their banks|rose to record levels} on <day> after <c:4-9> inches of rain fell within
  <d:10-30> hours.
The town of <town> was hit hardest: water stood <e:2-6> feet deep on the main street, and <f:40-300/10> people had to
  leave their homes.
Wind speeds of up to <g:60-110> miles per hour were measured at the airport, where <h:20-140> flights were cancelled.
Fire crews were called out more than <i:200-900/10> times, mostly to remove fallen trees and to pump out cellars.
"I have lived here for <j:20-60> years and {have never seen anything like it|this was the worst night of all}," said
  <person> <surname>, a retired {teacher|bus driver}.
No deaths were reported, but <k:3-25> people were treated for {minor injuries|cuts and bruises}, officials said.
Engineers are checking {two bridges|a dam|the railway line} near <town2> for damage and hope to finish by <day2>.
The power company said that {most|three quarters} of the affected households would be supplied again within <l:12-48>
  hours.
Emergency shelters were opened in a {sports hall|church|high school}, where volunteers handed out blankets and {hot
  soup|tea}.
Forecasters had issued a warning <m:1-3> days earlier, and many shops had put sandbags in front of their doors.
Meteorologist <person2> <surname2> said that the sea had been unusually warm this {autumn|spring}, which gives storms
  more energy.
The last flood of this size in the area was in <n:1950-2005>, when a wooden bridge was carried away.
Calmer and colder weather is expected for the rest of the week, with {frost|sunshine} at night and light winds.
"""),
    "court": lines("""
A {former accountant|former manager|retired contractor} was sentenced to <a:2-9> years in prison on <day> for taking
  $<b:110-950/10>,000 from {a charity|a housing association|his employer} in <town>.
A court in <town> ruled on <day> that <company> must pay $<c:2-60> million to {former customers|its neighbors|a
  smaller rival}, ending a case that began in <d:2012-2020>.
Judge <person> <surname> said that the evidence left {no room for doubt|little doubt} and described the conduct as
  {reckless|careful and deliberate}.
1>Over a period of <e:3-9> years, the court heard, <f:40-300/10> false {invoices|receipts} had been written.
1>The case came to light when a new {employee|auditor} noticed that two {addresses|account numbers} did not exist.
1>"{Trust was abused|People relied on those figures}," the judge said. "{A fine alone would not be enough|That must
  have consequences}."
Defense lawyer <person2> <surname2> argued that {mistakes had been made by several people|the rules at the time were
  unclear} and asked for a lower penalty.
More than <g:20-80> witnesses were heard during the trial, which lasted for <h:3-14> weeks.
1>Prosecutors had asked for {a harsher sentence|a higher sum} and said that they were still satisfied with the outcome.
1>Some of the money had been spent on {sports cars|a sailing boat|holidays}, and only a third has been recovered.
Outside the courthouse, {several victims|a group of residents} said they were relieved that the long wait was over.
<person3> <surname3>, who had lost $<i:4-60>,000, said that {no ruling could bring back the lost years|the apology
  meant more than the money}.
Both sides have <j:14-30> days to appeal, and the defense said that it would {read the ruling first|do so}.
2>The case turned on a contract of <x:12-90> pages that both sides had read differently from the first day.
2>Internal messages shown in court proved that managers had known of the {defect|problem} for <w:2-6> years.
2>In a statement, the company said it {regretted|disagreed with} the ruling and had since replaced its
  {management|safety officers}.
2>The sum will be shared among <v:40-900/10> people who had joined the lawsuit.
1>A second trial, against a former {business partner|assistant}, is due to begin in <month>.
"""),
    "health": lines("""
Hospitals in the <region> will {hire|train} <a:80-600/10> more nurses over the next <b:2-5> years, the health ministry
  said on <day>.
A study of <c:2-30>,000 adults suggests that {walking|sleeping|gardening} a little longer every day may lower the risk
  of {heart disease|diabetes|falls}.
1>The announcement follows a year in which patients had to wait <d:4-12> hours on average in emergency rooms.
2>People in the active group were <e:10-40> percent less likely to {need treatment|be admitted to hospital} during the
  <f:4-12> years of the study.
Doctor <person> <surname>, who heads {a clinic|the department} in <town>, called the news {encouraging|a first step}.
2>"{There is no magic number|Small steps count}," <surname> said. "{What matters is to begin|Patients notice the
  difference within weeks}."
1>The program costs $<g:12-90> million and also covers {home visits|a telephone line for parents|courses for
  relatives}.
1>Critics say that {wages remain too low|rural areas are left out}, and that one in <h:4-9> posts has been empty since
  <month>.
1>In <town2>, a pilot project with {electronic records|mobile clinics} has cut waiting times by <i:12-45> percent.
2>The authors caution that {other habits could explain part of the effect|they cannot prove cause and effect}.
2>Participants were between <j:30-45> and <k:65-85> years old, and slightly more than half of them were women.
The patients' association welcomed the plan but asked for {clear targets|a yearly report}.
<person2> <surname2>, a {nurse|physiotherapist} with <l:6-35> years of experience, said that colleagues were tired but
  hopeful.
First results are expected in <month2> of next year, and a larger trial is being prepared.
"""),
    "space_tech": lines("""
A {satellite|small spacecraft} built by students in <town> reached orbit on <day> and sent its first {signal|picture}
  after <a:2-40> minutes.
<company> {presented|unveiled} a {robot|delivery drone|battery} on <day> that it says can work for <b:10-72> hours
  without a break.
The device weighs <c:4-90> pounds and cost $<d:90-900/10>,000, a fraction of the price of similar machines.
It carries <e:3-9> sensors, {a camera with a wide lens|a radar the size of a shoebox} and a computer that chooses its
  own route.
During a test in <month>, an earlier version lost contact after <f:8-50> hours because of a faulty
  {cable|switch|valve}.
1>"{We cried, we laughed and then we went back to work|Nobody in the control room said a word}," project leader
  <person> <surname> said of that moment.
About <g:40-240/10> people worked on the project for <h:3-8> years, many of them in their spare time.
The data will be used to {track forest fires|measure ice on lakes|plan bus routes|inspect bridges} in <i:3-15>
  countries.
2>Privacy groups have asked who will be able to see the images, and for how long they are stored.
<person2> <surname2>, an expert on {safety|machine learning} at the University of <town2>, said independent tests were
  needed.
2>Regulators have allowed a trial for <j:6-18> months, limited to {daylight|an area of ten square miles|good weather}.
If all goes well, <k:4-30> more units are to follow by the end of the decade.
The team now wants to halve the {weight|use of energy} of the next model.
The next milestone comes in <month2>, when {the solar panels will be turned toward the sun|a first customer will test
  the system}.
"""),
    "culture": lines("""
A {painting|manuscript|violin} that had hung unnoticed in a {school|farmhouse|town hall} in <town> for <a:30-90> years
  was sold for $<b:2-40> million on <day>.
The {film|music|book} festival of <town> opened on <day> with <c:40-200/5> events and a record <d:12-90>,000 visitors
  expected.
1>Experts first believed the work to be a copy and valued it at only $<e:200-900/50>, until {a restorer|a student}
  found a signature under the frame.
2>On the first evening, <v:300-2000/50> people listened to a reading under the open sky.
2>Hotels within <u:10-40> miles are fully booked, and some families rent out their gardens to campers.
2>This year's program is about {rivers|childhood|borders|the night}, and guests come from <f:14-50> countries.
1>"{I thought the phone call was a joke|My hands were shaking}," said <person> <surname>, <g:28-80>, who {had
  inherited it|found it}.
1>The museum in <town2> had hoped to buy it, but the price went beyond its budget within <h:2-9> minutes.
2>Director <person2> <surname2> said that half of the tickets cost less than $<i:8-20> and that students pay nothing
  on <day2>.
2>A jury of <j:5-11> will award a prize of $<k:5-50>,000, which last year went to a first-time
  {director|author|composer}.
1>The artist, who died in <l:1890-1960>, left fewer than <m:30-90> works, most of which are in private hands.
2>Some {critics|local artists} complain that famous names get the big halls while newcomers play in {tents|cafes}.
2>The town has put extra buses on the road and turned <n:2-6> streets into pedestrian areas.
2>Part of the proceeds will be given to a fund that pays for {music lessons|library books} for children.
1>Scientists used {X-rays|infrared light} to make older layers visible and found the outline of {a second figure|a
  ship}.
1>The work will be on public display until the end of <month>, before it goes on a tour of <o:3-9> cities.
"""),
    "transport": lines("""
A new {train|ferry|tram} line between <town> and <town2> opened on <day>, <a:2-6> years later than planned and
  $<b:20-300/10> million over budget.
Commuters in the <region> face {long delays|two weeks of detours} after engineers found cracks in a bridge near <town>
  on <day>.
1>The trip now takes <c:18-70> minutes, {about half|two thirds} of the time that drivers need during rush hour.
Around <d:8-60>,000 people use the route on a normal working day, <e:5-30> percent more than ten years ago.
<company>, which built the {vehicles|tracks}, had struggled with {software errors|brakes that froze in winter}.
1>"{The first ride was worth the wait|I will leave my car at home from now on}," said <person> <surname>, who works at
  a {hospital|bank|garden center} in <town2>.
Transport minister <person2> <surname2> apologized for the delays and promised {an independent review|better
  planning}.
1>A single ticket costs $<f:2-9>, and children under <g:6-14> travel free of charge.
1>Cycling groups criticized that only <h:4-12> bicycles fit on each {train|vehicle}.
2>Inspectors noticed the damage during a routine check and closed <u:2-3> lanes within the hour.
2>Replacement buses run every <x:10-30/5> minutes, and drivers are asked to use the road along the river.
2>Repairs will cost about $<w:2-30> million and have to wait until special steel arrives from abroad.
2>The bridge was built in <i:1935-1975> for far lighter traffic, and {trucks|buses} will not be allowed on it before
  <month>.
1>Extra {boats|buses} run every <j:10-30/5> minutes until <k:9-11> in the evening.
1>Shops near the stations report <l:10-35> percent more customers, while a gas station on the old road may have to
  close.
1>Noise is measured at <m:8-30> points along the line, because residents had gone to court over it.
1>An extension to the {airport|university} is planned, but its financing is not settled yet.
"""),
}

POOLS: Mapping[str, Sequence[str]] = {
    "building": pool(
        "library, swimming pool, fire station, youth center, primary school, concert hall, sports hall, clinic"
    ),
    "street": pool("Mill Lane, Station Road, Harbor Street, Orchard Avenue, Bridge Street, Church Hill, Foundry Road"),
    "region": pool(
        "northern counties, eastern valleys, lake district, southern plains, central highlands, western islands"
    ),
    "club": pool(
        "Falcons, Rovers, Mariners, Wolves, Comets, Harriers, Lancers, Otters, Rangers, Pilots, Miners, Bulls"
    ),
    "finding": lines("""
{songbirds|bats} change their calls in noisy cities
bees remember the {colors|positions} of flowers for several days
young {eels|salmon} find their way with the help of the Earth's magnetic field
trees in mixed forests {grow faster|survive dry years better} than trees of a single kind
lakes lose oxygen {earlier in the year|faster} than was thought
{wolves|whales} pass on hunting habits from one generation to the next
some {mosses|bacteria} can survive years without water
glaciers leave behind more {dust|nutrients} than rivers can carry away
old rocks on the sea floor store large amounts of {carbon|water}
coral reefs recover more quickly when {large fish|sea urchins} are present
"""),
}

GENERAL = lines("""
Local radio reported on the matter all {day|morning}, and more than <p:20-90> listeners called in.
A spokesperson for <company3> declined to comment.
In a survey of <q:400-2000/100> people in the region, <r:51-79> percent said they had followed the story closely.
<person4> <surname4>, who teaches {history|economics|geography} in <town4>, sees it as part of a larger change. "{We
  should not expect miracles|One step at a time}," <surname4> said. "{In ten years we will know who was right|Much
  depends on what happens next}."
Similar news had come from <town5> only <s:2-9> weeks before.
A meeting where people can ask questions is planned for <day3> evening at the {town hall|community center} and will be
  shown online.
<person5> <surname5>, <t:19-88>, who has lived in the area for many years, was less impressed. "{I have heard such
  things before|They all talk a lot}," <surname5> said while waiting for a bus. "{Let us see what is left of it next
  year|I just hope that somebody keeps an eye on the costs}."
Details will be published on <day4>, together with {photographs|a list of common questions}.
Not everybody was surprised: a report from <z:2008-2019> had predicted much the same.
""")
