"""The small grammar that prompts are drawn from, and the words that several families share.

A template holds choices `{one|other}`, slots `<pool>` and whole numbers `<a:3-9>`. A slot draws from the pool of that
name and keeps its value for the rest of the prompt; `<pool2>` is a second, different draw, `<^pool>` starts with a
capital, `<!a:3-9>` draws without showing and `<=a*2>` computes with the numbers. Must not know any family of prompts.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence

_CHOICE = re.compile(r"\{([^{}]*)\}")
_SLOT = re.compile(r"<(\^?)([a-z_]+)(\d*)>")
_NUMBER = re.compile(r"<(!?)([a-z]):(\d+)-(\d+)(?:/(\d+))?>")
_COMPUTED = re.compile(r"<=([^<>]+)>")
_ARTICLE = re.compile(r"\b([Aa]) (?=(?!uni|use|eu|one\b|ut)[aeiou]|8|11\b|18\b)")


def pool(text: str) -> list[str]:
    """The entries of a comma-separated text."""
    return [" ".join(entry.split()) for entry in text.split(",")]


def lines(text: str) -> list[str]:
    """The entries of a text with one entry a line; an indented line continues the one before."""
    return re.sub(r"\n +", " ", text.strip()).split("\n")


class Draw:
    """One prompt's draws: slots and numbers keep their values until the next Draw."""

    def __init__(self, rng: random.Random, pools: Mapping[str, Sequence[str]]) -> None:
        self.rng = rng
        self.numbers: dict[str, int] = {}
        self._pools = {**WORDS, **pools}
        self._slots: dict[str, str] = {}

    def fill(self, template: str) -> str:
        """The template with every choice, slot and number filled in."""
        return _ARTICLE.sub(r"\1n ", self._fill(template))

    def _fill(self, template: str) -> str:
        while _CHOICE.search(template):
            template = _CHOICE.sub(lambda match: self.rng.choice(match[1].split("|")), template)
        template = _NUMBER.sub(self._number, template)
        template = _COMPUTED.sub(lambda match: str(eval(match[1], {"__builtins__": {}}, self.numbers)), template)
        return _SLOT.sub(self._slot, template)

    def _number(self, match: re.Match[str]) -> str:
        hidden, name, low, high, step = match.groups()
        value = self.numbers.setdefault(name, self.rng.randrange(int(low), int(high) + 1, int(step or 1)))
        return "" if hidden else str(value)

    def _slot(self, match: re.Match[str]) -> str:
        capital, name, number = match.groups()
        key = name + number
        if key not in self._slots:
            taken = {value for other, value in self._slots.items() if other.rstrip("0123456789") == name}
            entries = [entry for entry in self._pools[name] if entry not in taken]
            self._slots[key] = self._fill(self.rng.choice(entries))
        value = self._slots[key]
        return value[:1].upper() + value[1:] if capital else value


WORDS: Mapping[str, Sequence[str]] = {
    "she": pool("""
        Amara, Ingrid, Priya, Lucia, Noor, Freya, Mei, Tamsin, Odette, Zuri, Hanna, Carmen, Leila, Rosalind, Yuki,
        Bridget, Anika, Delphine, Saoirse, Paloma, Greta, Imani, Svetlana, Maren, Chiara, Nadia, Philippa, Thandi"""),
    "he": pool("""
        Mateo, Kwame, Lars, Dmitri, Rohan, Felix, Hiroshi, Omar, Tobias, Emeka, Callum, Andrei, Javier, Niko, Idris,
        Gareth, Anton, Bilal, Marek, Sanjay, Thiago, Oskar, Pavel, Jonas, Rafael, Kofi, Desmond, Wei"""),
    "person": ["<she>", "<he>", "<she2>", "<he2>", "<she3>", "<he3>"],
    "surname": pool("""
        Okafor, Lindqvist, Marchetti, Osei, Thornbury, Kowalczyk, Ferreira, Haddad, Nakamura, Vance, Petrov,
        Delgado, Ashworth, Brandvold, Iyer, Castellan, Mwangi, Rourke, Zielinski, Abara, Holloway, Duarte, Sorensen,
        Whitlock, Rahman, Beaumont, Quispe, Hartnell, Ivanova, Tanaka, Llewellyn, Mbeki, Strand, Pereira, Novotny"""),
    "town": pool("""
        Harrowgate Bay, Millbrook, Stonebridge, Port Ellery, Ashcombe, Larkfield, Greywater, Eastmere, Dunvale,
        Coldwell Springs, Fernhill, Saltmarsh, Redcliff, Northwick, Willowdale, Highmoor, Kestrel Point, Oakhaven,
        Brindle Falls, Westerly, Thistledown, Marlow Heights, Glenrock, Silverton Lake, Pinecrest, Barrow Hill"""),
    "city": pool("""
        Lisbon, Nairobi, Osaka, Toronto, Prague, Lima, Melbourne, Cairo, Oslo, Mumbai, Chicago, Seoul, Vienna,
        Bogota, Edinburgh, Istanbul, Marrakesh, Denver, Helsinki, Hanoi, Barcelona, Montreal, Budapest, Cape Town"""),
    "country": pool("""
        Portugal, Kenya, Japan, Canada, Peru, Egypt, Norway, India, Brazil, Vietnam, Greece, Chile, Iceland,
        Morocco, Poland, Indonesia, Mexico, Turkey, Ireland, Ethiopia, New Zealand, Thailand, Argentina, Finland"""),
    "day": pool("Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday"),
    "month": pool("""
        January, February, March, April, May, June, July, August, September, October, November, December"""),
    "animal": pool("""
        dog, cat, elephant, squid, honeybee, penguin, horse, owl, dolphin, beaver, rabbit, whale, tortoise, crow,
        shark, lion, bat, hummingbird, spider, camel, otter, parrot, goat, hedgehog"""),
    "food": pool("""
        lentil soup, banana bread, vegetable curry, roast chicken, pancakes, tomato pasta, fried rice, apple pie,
        mushroom risotto, bean chili, scrambled eggs, potato salad, fish tacos, chocolate cake, granola, pizza,
        hummus, chicken noodle soup, omelettes, oatmeal cookies, vegetable stew, guacamole, rye bread, lemonade"""),
    "job": pool("""
        nurse, electrician, high school teacher, software developer, chef, accountant, librarian, architect,
        journalist, farmer, graphic designer, project manager, pharmacist, mechanic, translator, pilot, social
        worker, data analyst, sales representative, veterinarian, firefighter, plumber, photographer, museum guide"""),
    "hobby": pool("""
        gardening, photography, chess, painting, hiking, knitting, playing the guitar, bird watching, baking,
        running, woodworking, learning languages, cycling, pottery, swimming, writing, yoga, fishing, board games,
        dancing, astronomy, calligraphy, rock climbing, cooking"""),
    "thing": pool("""
        marbles, stickers, pencils, apples, seashells, postcards, beads, buttons, muffins, lemons, badges, oranges,
        candles, stamps, bookmarks, balloons, cookies, tulips, magnets, ribbons, crayons, walnuts, keychains"""),
    "family": pool("sister, brother, cousin, mother, father, grandmother, uncle, aunt, neighbor, best friend"),
    "colour": pool("red, blue, green, yellow, orange, purple, white, black, silver, brown"),
    "company": pool("""
        Brightwell Foods, Corvane Systems, Tidewater Energy, Halden Motors, Pinnacle Freight, Novalis Health,
        Meridian Rail, Oakline Furniture, Solara Batteries, Ferrous Steel, Lumen Robotics, Clearbrook Water, Aster
        Airlines, Quillon Media, Granary Bakeries, Vertex Chips, Bluefin Shipping, Hearthstone Homes, Kitewing
        Drones"""),
    "science": pool("""
        photosynthesis, gravity, plate tectonics, evolution, the water cycle, DNA, black holes, electricity,
        magnetism, the immune system, nuclear fusion, the greenhouse effect, sound waves, the periodic table,
        vaccines, entropy, enzymes, tides, friction, light refraction, volcanoes, ocean currents, the food chain,
        atoms, stem cells, antibiotics, lightning, rainbows, erosion, digestion, hibernation, fossils,
        radioactivity, the speed of light, mitosis, osmosis, inertia, the ozone layer, comets, solar eclipses"""),
    "tech": pool("""
        machine learning, blockchain, cloud computing, encryption, the internet, GPS, solar panels, 3D printing,
        virtual reality, search engines, electric cars, batteries, touch screens, databases, neural networks, fiber
        optics, wind turbines, QR codes, firewalls, self-driving cars, speech recognition, microchips, Bluetooth,
        smart homes, drones, heat pumps, operating systems, open source software"""),
    "economics": pool("""
        inflation, supply and demand, compound interest, a budget deficit, the stock market, a mortgage,
        unemployment, taxes, insurance, opportunity cost, a monopoly, exchange rates, credit scores, retirement
        savings, crowdfunding, free trade, a recession, minimum wages, index funds, start-up funding"""),
    "history": pool("""
        the Industrial Revolution, the Roman Empire, the Silk Road, the French Revolution, the Renaissance, ancient
        Egypt, the Cold War, the Black Death, the invention of the printing press, the Age of Exploration, the fall
        of the Berlin Wall, the Viking age, the Moon landing, the Ottoman Empire, the Great Depression, the Aztec
        civilization, the Magna Carta, the American Civil War, the Ming dynasty, the suffrage movement, the Bronze
        Age, the Mongol Empire"""),
    "figure": pool("""
        Marie Curie, Leonardo da Vinci, Cleopatra, Isaac Newton, Ada Lovelace, Nelson Mandela, Charles Darwin,
        Galileo Galilei, Florence Nightingale, Mahatma Gandhi, William Shakespeare, Alexander the Great, Frida
        Kahlo, Nikola Tesla, Rosa Parks, Johann Sebastian Bach, Amelia Earhart, Aristotle, Jane Austen, Confucius"""),
    "abstract": pool("""
        empathy, patience, democracy, creativity, honesty, leadership, friendship, courage, curiosity, justice,
        stress, motivation, procrastination, self-confidence, teamwork, gratitude, critical thinking, boredom,
        ambition, forgiveness"""),
    "product": pool("""
        reusable water bottle, standing desk, noise-cancelling headset, folding bicycle, herbal tea, hiking
        backpack, robot vacuum cleaner, desk lamp, wool blanket, language learning app, coffee grinder, yoga mat,
        wooden toy set, rain jacket, fitness tracker, camping lantern, board game, electric kettle, garden tool set,
        travel pillow"""),
    "place": pool("""
        bakery, gym, library, hotel, museum, garden center, dentist's office, cafe, bookstore, repair shop, hair
        salon, pet store, school, online store, theater, farm"""),
}
