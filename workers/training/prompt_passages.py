"""The small texts that edit prompts hand over: ordered sentences to choose from, and the slips of a hasty writer."""

import random

__all__ = ["THEMES", "compose_passage", "compose_records", "spoil"]

# Each theme is a run of sentences that still reads well when some are left out; slots as in the forms.
THEMES: tuple[tuple[str, ...], ...] = (
    (
        "The library on Mill Street reopens on {day}.",
        "It had been closed for {3-14} months because of water damage.",
        "The reading room now has {20-90} seats and much better light.",
        "A group of volunteers led by {name} sorted more than {2000-9000} books.",
        "Children can borrow up to {4-12} items at a time.",
        "The café on the ground floor will open later, probably in {month}.",
        "Entrance remains free for everyone.",
    ),
    (
        "Our team met on {day} to look at the new schedule.",
        "{name} reported that the prototype is about {2-6} weeks late.",
        "The main reason is a supplier who delivered the wrong parts.",
        "We agreed to test with {5-30} customers before the launch.",
        "The launch itself moves to {month}.",
        "{name} will talk to the press office.",
        "Nobody asked for more money, but travel costs should be watched.",
    ),
    (
        "Last {month} we walked along the coast for {4-9} days.",
        "The path climbs up and down more than the map suggests.",
        "On the second day it rained so hard that we stayed in a barn.",
        "A farmer called {name} brought us soup and dry socks.",
        "We met only {3-20} other walkers during the whole trip.",
        "My boots gave up near the end.",
        "I would go again tomorrow.",
    ),
    (
        "Bees find their way back to the hive with the help of the sun.",
        "They notice landmarks such as trees, walls and ponds.",
        "A worker that has found food dances to show the others the direction.",
        "One hive may hold {20-60} thousand bees in summer.",
        "In winter they form a tight ball and take turns at the warm centre.",
        "Without them many fruit trees would carry very little fruit.",
    ),
    (
        "Heat the oven to {180-220} degrees and grease a small tin.",
        "Mash {2-4} ripe bananas with a fork.",
        "Stir in {80-150} grams of sugar, one egg and a little oil.",
        "Fold in the flour, but do not beat the mixture.",
        "Walnuts are optional and taste best when they are toasted.",
        "Bake the loaf for about {40-65} minutes.",
        "Let it cool before you cut it.",
    ),
    (
        "I bought this lamp for my desk in {month}.",
        "The light is bright without being harsh.",
        "After {2-9} weeks the switch began to stick.",
        "The shop in {city} answered my message within a day.",
        "They sent a new one and did not ask for the old one back.",
        "The cable could be longer.",
        "For {20-80} euros I am happy with it.",
    ),
    (
        "The town of {city} plans to close its market square to cars.",
        "Shop owners fear that they will lose customers.",
        "A survey of {300-900} residents found that most of them support the plan.",
        "Buses would stop {50-300} metres away from the square.",
        "The mayor, {name}, wants to try the change for one summer.",
        "A decision is expected in {month}.",
    ),
    (
        "{name} started to learn the cello at the age of {30-70}.",
        "The first months were hard for the neighbours as well.",
        "A patient teacher and {15-40} minutes of practice a day made the difference.",
        "Now there is a small quartet that meets every {day}.",
        "They play badly, laugh a lot and drink too much tea.",
        "Next {month} they will give their first concert in a garden.",
    ),
    (
        "Please remember that the office will be closed on {day}.",
        "The heating will be repaired and there will be no warm water.",
        "Computers can stay on, but screens should be switched off.",
        "Deliveries will be accepted next door until {2-5} pm.",
        "If you have urgent work, ask {name} for a desk in the other building.",
        "We are sorry for the trouble.",
    ),
    (
        "Volcanoes form where melted rock finds a way to the surface.",
        "Some of them are quiet for {2-9} hundred years and then wake up.",
        "Scientists measure small earthquakes and gases to warn people early.",
        "The ash makes fields fertile, which is why many people live nearby.",
        "Thick ash can also stop air traffic for days.",
    ),
    (
        "My brother and I run a small repair shop in {city}.",
        "We fix radios, toasters and anything else with a plug.",
        "About {5-9} out of ten things can be saved.",
        "People often tell us the story of the object while they wait.",
        "Last {day} a woman brought the first mixer she ever owned.",
        "It needed nothing but a new cable and some oil.",
        "We charged her {5-20} euros and a piece of cake.",
    ),
    (
        "The school will start a garden behind the gym.",
        "Each class gets a bed of {4-12} square metres.",
        "{name}, who teaches biology, has ordered seeds for beans and pumpkins.",
        "Parents are welcome to lend spades and watering cans.",
        "The first digging day is a {day} in {month}.",
        "What the children harvest will be cooked in the canteen.",
    ),
    (
        "The app keeps a list of everything in your kitchen.",
        "You scan a product once and it remembers the date.",
        "It warns you {2-5} days before food goes bad.",
        "It can also suggest a meal from what is left.",
        "The data stay on your phone.",
        "The free version is limited to {40-99} products.",
        "A family plan costs {2-9} euros a month.",
    ),
    (
        "The match on {day} was decided in the last minute.",
        "Our goalkeeper, {name}, saved two penalties.",
        "Around {200-900} people watched in spite of the cold.",
        "The other side was stronger in the first half.",
        "After the break we ran more and talked more.",
        "The return match is in {city} in {month}.",
    ),
    (
        "Dear all, the trip to {city} is now booked.",
        "Our train leaves at {6-10}:{15-55} on {day} morning.",
        "Please bring a packed lunch, good shoes and a rain jacket.",
        "{name} keeps the tickets for everybody.",
        "Rooms are shared by {2-4} people.",
        "If you feel ill before we leave, call {name} and stay at home.",
    ),
    (
        "The printer on the second floor stopped working on {day}.",
        "It reports a paper jam although there is no paper inside.",
        "I switched it off and on {2-5} times without success.",
        "A technician looked at it for {10-50} minutes and ordered a new roller.",
        "Until then, {name} lets us use the small printer in the archive.",
        "Large jobs should wait if possible.",
    ),
    (
        "Salt was once so valuable that wars were fought over it.",
        "Towns near a mine or a salty spring grew rich.",
        "Before refrigerators, it kept meat and fish from spoiling.",
        "Merchants moved it over hundreds of kilometres on mules and boats.",
        "Today a kilo costs less than a cup of coffee.",
        "Many street names still remember the old trade.",
    ),
    (
        "Many people check their phone within {2-9} minutes of waking up.",
        "The habit feels harmless, but it sets the mood for the day.",
        "In a small trial, {20-90} volunteers left their phone in the kitchen at night.",
        "Most of them slept better after {1-3} weeks.",
        "Some bought an alarm clock for the first time in years.",
        "A few gave up because they missed calls from family.",
    ),
    (
        "The flat has {2-5} rooms and a balcony that faces south.",
        "The rent is {600-1900} euros a month without heating.",
        "The kitchen is small but has a new oven.",
        "A tram to the centre of {city} stops {2-9} minutes away.",
        "Pets are allowed if the neighbours agree.",
        "It is free from the first of {month}.",
        "Please write to {name} and say a few words about yourself.",
    ),
    (
        "When {name} opened the door, the room was full of balloons.",
        "Nobody was there, only a note on the table.",
        "It said that the cake was hidden and that time was short.",
        "The first clue led to the cellar and the second to the roof.",
        "After {10-50} minutes, dusty and laughing, the guest of honour found us all in the garage.",
        "The cake had already been eaten by the dog.",
    ),
    (
        "Sales rose by {3-19} percent in {month}.",
        "Most of the growth came from the online shop.",
        "Costs for shipping went up as well, so the profit stayed the same.",
        "Returns fell to {2-8} percent, the lowest value so far.",
        "{name} suggests raising the limit for free delivery.",
        "We will decide at the meeting on {day}.",
    ),
    (
        "Trams came back to many cities after they had been torn out.",
        "One tram carries as many people as {80-180} cars.",
        "Grass between the rails keeps streets cool and quiet.",
        "Building a line is slow and shops nearby suffer for a year or two.",
        "Once it runs, the same shops often gain customers.",
        "In {city} the new line is used by {10-60} thousand people a day.",
    ),
)

_SLIPS = (
    (" their ", " there "), (" there ", " their "), ("because", "becuase"), ("their", "thier"), (" is ", " are "),
    (" was ", " were "), (" has ", " have "), (" and ", " an "), ("ould ", "uld "), ("ee", "e"), (", but", " but"),
    (" than ", " then "), ("ei", "ie"), (" too ", " to "), (" will ", " wil "), ("ll ", "l "), (" the ", " teh "),
    ("first", "frist"), ("people", "poeple"), ("much", "mutch"), (" were ", " was "), (" our", " are"), (".", ""),
)  # fmt: skip


def compose_passage(rng: random.Random) -> str:
    """Three to six sentences of one theme in their order, slots still open."""
    theme = rng.choice(THEMES)
    count = rng.randint(3, min(6, len(theme)))
    return " ".join(theme[place] for place in sorted(rng.sample(range(len(theme)), count)))


def compose_records(rng: random.Random) -> str:
    """Three to seven lines of a name, an age and a city, slots still open."""
    separator = rng.choice((", ", " - ", "; ", " / "))
    line = separator.join(("{name}", "{18-79}", "{city}"))
    return "\n".join(line for _ in range(rng.randint(3, 7)))


def spoil(text: str, rng: random.Random) -> str:
    """`text` with three to five of the slips that fit it, each made once."""
    fitting = [slip for slip in _SLIPS if slip[0] in text]
    for right, wrong in rng.sample(fitting, min(len(fitting), rng.randint(3, 5))):
        text = text.replace(right, wrong, 1)
    return text
