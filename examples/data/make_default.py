#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The omni authors
# SPDX-License-Identifier: BSL-1.0
"""Writes default.txt, the text that examples/embedding.cpp reads when it is given none: `python3 make_default.py > default.txt`.

Small scenes from a grammar. Words of one scene go together, as in real text, and some words are far more common than others.
"""
import textwrap

class Random:  # the same in every Python
    def __init__(self, seed): self.state = seed
    def below(self, n):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % n
    def one(self, words):  # the first are the most common: 1, 1/2, 1/3, ...
        x = self.below(1 << 20) / (1 << 20) * sum(1 / (i + 1) for i in range(len(words)))
        for i, word in enumerate(words):
            x -= 1 / (i + 1)
            if x < 0: return word
        return words[-1]
    def chance(self, percent): return self.below(100) < percent

# people; things; places; what they did to things; how things were; what happened by itself
SCENES = {
    "harbour": ("fisherman sailor captain pilot boatswain diver netmaker shipwright stowaway ferryman",
                "boat net rope sail anchor lantern mast oar crate barrel hull compass rudder buoy cable tiller",
                "harbour quay pier lighthouse shore bay jetty breakwater sandbank customhouse",
                "mended hauled moored painted lowered raised tarred rowed loaded steered untied scraped",
                "salty wet heavy rusty wooden tall leaking blue seaworthy barnacled",
                "the tide turned|gulls cried over the water|a swell came in from the sea|the fog lifted slowly|a bell rang on the buoy|the current ran out past the point"),
    "garden": ("gardener neighbour beekeeper widow girl botanist grandfather nurseryman",
               "rose apple hedge spade seed basket hive pear fern tulip rake trellis cabbage onion lily bulb",
               "garden orchard greenhouse lawn meadow border well terrace potting-shed arbour",
               "planted watered pruned dug picked weeded grafted raked smelled gathered trimmed sowed",
               "green ripe sweet thorny early yellow fragrant young wilted mossy",
               "bees went from flower to flower|a robin watched from the wall|the blossom fell like snow|the soil was warm|worms came up after the rain|the pears began to redden"),
    "kitchen": ("cook baker grandmother apprentice guest waiter miller innkeeper",
                "bread soup pot knife oven kettle flour butter egg pie spoon salt cheese honey pan plate",
                "kitchen bakery pantry cellar inn table scullery larder hearth dining-room",
                "baked stirred tasted kneaded sliced boiled salted served peeled roasted warmed burned",
                "hot fresh crisp bitter golden hungry spicy copper buttered floury",
                "steam rose to the ceiling|the dough doubled under its cloth|the clock over the stove struck|the cat slept by the oven|milk boiled over|the smell of thyme filled the room"),
    "mountain": ("shepherd guide climber hermit hunter goatherd surveyor messenger",
                 "path rock snow stick goat tent stone boot map flock ledge glacier rope cairn horn torch",
                 "mountain valley ridge pass hut summit ravine slope cave pasture",
                 "climbed crossed followed carried measured drove found lost marked searched descended named",
                 "steep cold white narrow high icy grey distant lonely windswept",
                 "an eagle circled above|stones rattled down the slope|snow began to fall|the echo came back twice|clouds filled the valley|the last light left the peaks"),
    "workshop": ("carpenter smith clockmaker potter weaver tailor glassblower cobbler",
                 "hammer chair wheel clock saw loom nail bench needle lamp spring chisel plank thread kiln shoe",
                 "workshop forge yard mill loft market shed sawmill storeroom counter",
                 "repaired built sharpened carved polished measured oiled bent glued turned fitted finished",
                 "broken sharp smooth iron new crooked polished dusty careful oaken",
                 "sparks flew from the forge|shavings covered the floor|the wheel turned with a hum|the bellows sighed|every clock struck at once|dust danced in the light"),
    "library": ("librarian scholar teacher student poet printer clerk translator",
                "book letter page pen story atlas candle poem ink shelf word answer manuscript index dictionary question",
                "library school archive study courtyard hall tower reading-room gallery staircase",
                "read wrote copied translated remembered printed explained learned opened closed bound catalogued",
                "old quiet learned long leather rare patient famous faded curious",
                "the pages turned by themselves in the draught|nobody spoke|ink dried on the page|a chair scraped|the lamp burned low|somebody laughed behind the shelves"),
    "stage": ("singer fiddler dancer drummer actor conductor piper clown",
              "song fiddle drum dance tune mask curtain string play chorus flute verse trumpet costume ballad bow",
              "theatre square stage tavern street fair ballroom balcony dressing-room bandstand",
              "played sang tuned rehearsed heard practised whistled performed composed forgot applauded conducted",
              "loud merry slow sad bright lively painted silver solemn tuneful",
              "the curtain rose|the crowd clapped in time|a string snapped|the music stopped|children danced between the tables|the drums answered from across the square"),
    "night": ("astronomer watchman lamplighter child owl traveller dreamer nightwatch",
              "star telescope moon lens comet shadow chart planet window dream cloud lantern eclipse orbit meteor horizon",
              "observatory roof hill dome bridge road field attic crossroads village",
              "watched counted drew saw followed described calculated missed pointed-at named forgot expected",
              "dark faint silent clear bright early far pale wandering starlit",
              "the moon stood over the hill|a dog barked far away|the clouds parted|a meteor crossed the sky|frost formed on the glass|the whole village slept"),
    "railway": ("driver stoker conductor signalman passenger porter stationmaster engineer",
                "train engine whistle ticket signal carriage rail suitcase timetable lever coal wagon platform boiler brake parcel",
                "station tunnel viaduct junction platform depot crossing waiting-room siding terminus",
                "stopped coupled missed waved-at inspected stoked delayed boarded unloaded switched checked heard",
                "late fast crowded black punctual noisy northern empty electric rattling",
                "the whistle blew|smoke drifted over the fields|the rails began to sing|the signal fell with a clank|doors slammed along the train|the mail arrived an hour late"),
    "forest": ("woodcutter ranger charcoal-burner fox badger forager deer wanderer",
               "tree axe mushroom oak acorn branch log berry nest feather trail stump pine moss antler kindling",
               "forest clearing brook thicket glade lodge hollow swamp footbridge den",
               "felled tracked gathered stacked sniffed circled hid dragged split followed discovered avoided",
               "mossy tall fallen shady wild brown hollow tangled ancient rustling",
               "a woodpecker hammered in the distance|leaves drifted down|the brook murmured over stones|twigs cracked in the dark|the wind moved the crowns|mist hung between the trunks"),
}
TIMES = ["in the morning", "in the evening", "at noon", "that day", "before dawn", "after the rain", "in winter", "at last", "once",
         "late in autumn", "on market day", "when the wind fell", "on the first day of spring", "every summer", "years later",
         "towards midnight", "on a grey afternoon", "before the holidays"]
HOW = ["slowly", "carefully", "again", "without a word", "with great patience", "in a hurry", "for the last time", "as always", "with both hands",
       "rather badly", "by lamplight", "with a smile", "reluctantly", "for nothing", "twice", "on a whim", "to everyone's surprise"]
FEELINGS = ["tired", "happy", "content", "worried", "hopeful", "proud", "uneasy", "cheerful", "astonished", "grateful", "homesick", "stubborn"]
SAID = ["it would be enough", "nothing had changed", "there was time", "somebody would come", "the work was good", "it could wait",
        "they should begin again", "one more would not hurt", "the worst was over", "there had never been a better year"]

random = Random(2026)

def an(words): return ("an " if words[0] in "aeiou" else "a ") + words

def sentence(scene):
    people, things, places, did, were, events = scene
    one, the = random.one, lambda words: "the " + random.one(words)
    thing = lambda: (one(were) + " " if random.chance(45) else "") + one(things)
    place = lambda: random.one(["in", "at", "near", "behind", "beyond"]) + " " + the(places)
    kind = random.below(10)
    if kind < 3: s = f"{the(people)} {one(did)} the {thing()} {place()}"
    elif kind == 3: s = f"{the(people)} {one(did)} {an(thing())} and {one(did)} the {thing()} {one(HOW)}"
    elif kind == 4: s = f"the {one(things)} was {one(were)}, but the {one(things)} was {one(were)}"
    elif kind == 5: s = f"{the(people)} was {one(FEELINGS)}, and said that {one(SAID)}"
    elif kind == 6: s = f"{one(events)}, and {the(people)} {one(did)} the {thing()}"
    elif kind == 7: s = f"there was {an(thing())} {place()}, and nobody had {one(did)} it"
    elif kind == 8: s = f"{the(people[:3])} and {the(people[3:])} {one(did)} the {thing()} {one(HOW)}"
    else: s = f"while {one(events)}, {the(people)} went from {the(places)} to {the(places)} with the {one(things)}"
    if random.chance(30): s = f"{one(TIMES)} {s}"
    return s[0].upper() + s[1:] + "."

scenes = [tuple(part.split("|" if i == 5 else None) for i, part in enumerate(scene)) for scene in SCENES.values()]
for paragraph in range(110):
    scene = scenes[(paragraph * 7 + random.below(3)) % len(scenes)]
    print(textwrap.fill(" ".join(sentence(scene) for _ in range(5 + random.below(5))), 100, break_on_hyphens=False), end="\n\n")
