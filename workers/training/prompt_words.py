"""What the prompt set talks about: topics, people and things, each list one grammatical shape."""

__all__ = ["WORDS"]


def _items(text: str) -> tuple[str, ...]:
    return tuple(item for item in (" ".join(part.split()) for part in text.split(";")) if item)


# Noun phrases that follow "explain" and "what is".
_CONCEPTS = _items("""
photosynthesis; gravity; entropy; plate tectonics; natural selection; the water cycle; the ozone layer; dark matter;
the speed of light; radioactivity; antibiotic resistance; the placebo effect; osmosis; the nitrogen cycle; magnetism;
absolute zero; genetic inheritance; the immune system; blood pressure; insulin; cholesterol; circadian rhythms; fibre
in food; vitamin D; dehydration; muscle soreness; jet lag; migraine; lactose intolerance; herd immunity; inflation;
compound interest; an index fund; a mortgage; supply and demand; a central bank; value-added tax; insurance excess;
a credit score; opportunity cost; the gig economy; a trade deficit; depreciation; a budget deficit; bankruptcy;
recursion; public-key encryption; a hash table; DNS; an operating system; garbage collection; version control;
unit testing; a REST API; a neural network; overfitting; caching; a load balancer; big-O notation; open source
software; two-factor authentication; phishing; cloud computing; a container image; a race condition; a foreign key;
the Renaissance; feudalism; the Enlightenment; colonialism; the separation of powers; habeas corpus; federalism;
proportional representation; a constitutional monarchy; the Cold War; apartheid; the Silk Road; the gold standard;
fermentation; the Maillard reaction; gluten; umami; sourdough starter; sous vide cooking; emulsification; blanching;
caramelisation; cross-contamination in the kitchen; irony; the sonnet form; magical realism; perspective in painting;
impressionism; counterpoint; a time signature; syncopation; method acting; stream of consciousness; the golden ratio;
the unreliable narrator; Bauhaus design; the offside rule; interval training; a marathon taper; match point;
the decathlon; zone defence; aerobic fitness; handicap in golf; deuce in tennis; prime numbers; standard deviation;
probability; the Pythagorean theorem; logarithms; correlation and causation; Bayes' theorem; a derivative; a median;
imaginary numbers; game theory; confirmation bias; cognitive dissonance; the bystander effect; imposter syndrome;
emotional intelligence; stoicism; utilitarianism; free will; the trolley problem; existentialism; crop rotation;
composting; biodiversity; invasive species; a food chain; coral bleaching; hibernation; bird migration; camouflage;
pollination; mycelium; the carbon footprint; renewable energy; heat insulation; water hardness; a circuit breaker;
thermal expansion; time zones; daylight saving time; the International Date Line; a travel visa; agile project
management; a non-disclosure agreement; delegation; a probation period; critical thinking; plagiarism; peer review;
the scientific method; a thesis statement; the passive voice; the subjunctive mood; etymology; onomatopoeia
""")

# Things that "work".
_MACHINES = _items("""
a refrigerator; a microwave oven; a bicycle gear; a jet engine; a solar panel; a heat pump; an electric car battery;
a camera lens; noise-cancelling headphones; a touch screen; GPS; Wi-Fi; a barcode; a search engine; a spam filter;
email; a laser printer; a vaccine; an MRI scanner; a hearing aid; a pacemaker; a stethoscope; a lock and key;
a piano; a violin; a mechanical watch; a thermos flask; a dishwasher; a septic tank; a suspension bridge; a submarine;
a hot-air balloon; a sailing boat upwind; a stock exchange; a pension scheme; a jury trial; a parliament; a patent;
an airport control tower; a wind turbine; a nuclear power station; a pressure cooker; yeast in bread; a smoke alarm;
a thermostat; a metal detector; a 3D printer; a quartz clock; face recognition; a recommendation system; a compass
""")

_EVENTS = _items("""
the French Revolution; the fall of the Roman Empire; the Black Death; the invention of the printing press; the Moon
landing; the Industrial Revolution; the fall of the Berlin Wall; the Great Depression; the American Civil War; the
partition of India; the opening of the Suez Canal; the Congress of Vienna; the Russian Revolution; the Meiji
Restoration; the abolition of slavery in Britain; the suffragette movement; the Great Fire of London; the Battle of
Hastings; the Spanish Armada; the building of the pyramids; the first Olympic Games; the discovery of penicillin; the
Chernobyl disaster; the Treaty of Versailles; the Thirty Years' War; the voyages of Zheng He; the eruption of
Vesuvius; the birth of the internet; the 2008 financial crisis; the Space Race; the Mongol conquests; the Irish famine
""")

# Questions without their question mark.
_QUESTIONS = _items("""
why is the sky blue; why do leaves change colour in autumn; why does ice float; why do we yawn; why do we dream;
why do onions make us cry; why is the sea salty; how far away is the Moon; what causes thunder; why do cats purr;
why do stars twinkle; how old is the Earth; what is the largest desert in the world; how many bones does an adult
have; why does bread go stale; why do apples turn brown; what makes popcorn pop; why does metal feel colder than wood;
how do bees make honey; how do fish breathe; why do zebras have stripes; how do trees drink water; what is the
difference between weather and climate; how are mountains formed; who invented the telephone; when did people start
using money; why did the dinosaurs die out; why do we have leap years; where does chocolate come from; why is Venus
hotter than Mercury; what is inside a black hole; how do planes stay in the air; why do boats float; what does a
catalyst do; why do we need sleep; how much water should I drink in a day; is coffee bad for you; what happens when
you fast for a day; why do muscles cramp; how do glasses correct vision; how do we taste things; what is the longest
river in Africa; what is the capital of Australia; which languages are spoken in Switzerland; who painted the Mona
Lisa; who wrote Don Quixote; what was the Library of Alexandria; how do elections work in Germany; what does the
United Nations do; why are there so many programming languages; what happens when I type a web address; why do
computers use binary; how do passwords get stolen; what does RAM do; why do batteries wear out; why is the cello tuned
in fifths; how long does it take to learn a language; why do prices rise; what is a fair price for a used bike;
why do tennis balls have fuzz; how long is a football match; why do runners carbo-load; what makes a good pair of
hiking boots; how do hurricanes get their names; why do some people sunburn quickly; what is the oldest city in the
world; how deep is the ocean; how do snakes move without legs; why do flamingos stand on one leg; what is a group of
crows called; do plants sleep at night; how is glass made; how is paper recycled; where does household rubbish go
""")

# Verb phrases that follow "how do I" and "help me".
_TASKS = _items("""
bake sourdough bread; cook rice without it sticking; poach an egg; sharpen a kitchen knife; season a cast-iron pan;
make vegetable stock; plan meals for a week; freeze fresh herbs; cook for a guest with allergies; make a simple curry;
fall asleep faster; start running; stop biting my nails; improve my posture; stretch before a workout; drink less
coffee; lower my stress; get over a cold; treat a small burn; do my first pull-up; swim front crawl; train for a 10k;
choose running shoes; learn to juggle; improve my tennis serve; pack for a two-week trip; travel with a toddler;
find cheap flights; plan a road trip; get over jet lag; stay safe while travelling alone; pick a campsite; pitch a
tent; ask for a pay rise; prepare for a job interview; write a CV; give honest feedback; run a short meeting; handle
a difficult colleague; say no politely; work from home with children; change careers at forty; negotiate a contract;
resign on good terms; study for a history exam; take better notes; write an essay introduction; memorise vocabulary;
read faster; stop procrastinating; prepare a class presentation; choose a university; cite sources; learn Spanish;
back up my laptop; choose a strong password; speed up an old computer; set up a home network; undo a git commit;
learn Python; recover a deleted file; clean a keyboard; move photos to a new phone; spot a scam email; debug a slow
web page; write a good commit message; grow tomatoes on a balcony; keep a houseplant alive; attract birds to my
garden; start a compost heap; prune roses; get rid of slugs; plant a hedge; repot an orchid; identify mushrooms
safely; unblock a sink; remove a red wine stain; paint a room; fix a squeaky door; hang a heavy picture; descale a
kettle; insulate a draughty window; patch a hole in drywall; declutter a wardrobe; save on heating; assemble flat-pack
furniture; make a monthly budget; pay off a credit card; save for a house; start investing with little money; compare
insurance offers; teach a child about money; file my receipts; split bills with flatmates; draw a face; take photos in
low light; learn the guitar; write a song; start a novel; read sheet music; mix watercolours; sing in tune; start a
podcast; knit a scarf; make new friends in a new city; comfort a grieving friend; plan a birthday party; train a
puppy; introduce two cats; apologise sincerely; talk to a teenager; care for an elderly parent; write wedding vows;
host a dinner for eight; keep a diary; choose a bicycle; change a flat tyre; parallel park; learn chess openings
""")

# Pairs for comparisons: "X and Y".
_PAIRS = _items("""
tea and coffee; cats and dogs; renting and buying a home; Python and JavaScript; SQL and NoSQL databases; Linux and
Windows; trains and planes; butter and margarine; running and cycling; yoga and pilates; oil paint and acrylic;
film and digital photography; city life and village life; working at home and working in an office; public and private
schools; paper books and e-readers; gas and induction hobs; electric and petrol cars; football and rugby; poetry and
prose; capitalism and socialism; a virus and a bacterium; mitosis and meiosis; alligators and crocodiles; stocks and
bonds; debit and credit cards; leasing and buying a car; threads and processes; TCP and UDP; compiled and interpreted
languages; lists and tuples in Python; baking powder and baking soda; basmati and jasmine rice; cotton and wool;
hotels and holiday flats; group lessons and private lessons; the Stone Age and the Bronze Age; Athens and Sparta;
Mars and the Earth; comets and asteroids; moths and butterflies; hard wood and soft wood; annual and perennial plants;
meditation and prayer; memoir and autobiography; opera and musical; fixed and variable interest rates; stars and
planets; frozen and fresh vegetables; skiing and snowboarding; laptops and tablets; speed and velocity
""")

# Plural noun phrases that follow "give me N".
_LISTABLES = _items("""
gifts for a keen gardener; quick vegetarian dinners; healthy snacks for school; names for a black cat; names for a
bakery; rainy-day activities for children; things to do in Lisbon; sights in Kyoto; day trips from Munich; books about
the sea; films about friendship; classic novels for beginners; icebreakers for a team meeting; questions to ask in a
job interview; interview questions for a nurse; side projects for a programmer; ways to save water at home; ways to
use leftover rice; breakfasts without sugar; uses for old jars; hobbies for a retired couple; exercises without
equipment; stretches for office workers; plants for a shady room; birds seen in European gardens; animals that live in
deserts; inventions from ancient China; women who changed science; famous unsolved problems; common logical fallacies;
symptoms of burnout; tips for better sleep; topics for a school debate; science fair projects; maths games for
seven-year-olds; conversation starters for a first date; ideas for a surprise party; themes for a costume party;
titles for a mystery novel; plots for a short film; songs to learn on the ukulele; drawing prompts; team sports for
small groups; water sports; board games for four people; small business ideas for a village; ways to earn money as
a student; mistakes first-time home buyers make; hidden costs of owning a car; tools every home should have; spring
cleaning jobs; things to pack for a hike; foods rich in iron; spices used in Indian cooking; cheeses that melt well;
desserts without eggs; slogans for a bike shop; features for a weather app; security habits for small companies; Python
libraries for working with data; keyboard shortcuts worth learning; arguments for a four-day week; arguments against
school uniforms; ways to thank a teacher; new year's resolutions; synonyms for "important"; words that rhyme with
"light"; idioms about money; proverbs about patience; questions about the Solar System for a quiz; questions about
the Second World War for a quiz; questions about rivers for a pub quiz; reasons to learn a second language
""")

_HEROES = _items("""
a tired night-shift nurse; a shy dragon; a retired sailor; a robot gardener; two sisters; a boy who cannot lie; a
homesick astronaut; an old clockmaker; a talking crow; a baker with a secret; a lost postman; a young chess player; a
stubborn goat; a detective who is afraid of the dark; a ghost in a library; a street musician; a queen without a
country; a fox and a hedgehog; a taxi driver; a grandmother who codes; a lonely lift operator; a beekeeper; a time
traveller; a substitute teacher; a snail with big plans; an honest thief; a mapmaker; a cloud that wants to be a river
""")

_SETTINGS = _items("""
in a snowed-in train station; on a small island; in a city without cars; at the bottom of the sea; on the last day of
summer; in a mountain village; during a power cut; on a ship to Mars; in an abandoned theatre; in a busy kitchen; at a
school reunion; in medieval Prague; in a desert town; on a rooftop garden; in a museum after closing time; at a
flea market; in a house that moves; during the first snow; on a night bus; in a kingdom of birds
""")

_MUSES = _items("""
autumn rain; the first day of school; an empty chair; my grandmother's kitchen; the sea at night; a long train ride;
friendship; a broken umbrella; losing a game; the smell of coffee; a city at dawn; growing old; an old bicycle; the
moon; silence; a cat on a windowsill; moving house; a garden in winter; homework; missing someone; hope; the colour
green; a Monday morning; fresh bread; the stars; a river; dancing badly; my desk; a forgotten letter; spring
""")

_PRODUCTS = _items("""
a family bakery; a second-hand bookshop; an electric bike; a reusable water bottle; a dog-walking service; a language
school; a small brewery; a yoga studio; a note-taking app; a local newspaper; an organic farm; a children's theatre;
a repair café; handmade soap; a hiking club; a coffee roaster; a budgeting app; a flower shop; a tutoring service;
a night train
""")

_PEOPLE = _items("""
my manager; my landlord; a former colleague; my daughter's teacher; a customer; my neighbour; a supplier; the HR
department; my professor; an old friend; the city council; my team; a hotel; the local library; a recruiter; my
grandfather; the school board; a client; my doctor's office; our club members
""")

_PURPOSES = _items("""
to ask for a day off; to apologise for a late delivery; to say thank you for their help; to complain about the noise;
to invite them to a summer party; to move our meeting to Thursday; to ask for a letter of recommendation; to report a
broken heater; to cancel a subscription; to follow up on an unanswered question; to introduce myself; to congratulate
them on a new job; to ask about a refund; to decline an invitation; to announce a change of address; to ask for an
extension; to share good news; to remind them of an unpaid invoice; to suggest a joint project; to say goodbye before
moving away; to ask for feedback on my work; to offer help with an event; to explain a misunderstanding
""")

_POSTS = _items("""
a bake sale; a lost cat; my first marathon; a new job; a neighbourhood clean-up; the opening of a café; a charity
concert; a book I just finished; learning to code at fifty; a used sofa for sale; a photography exhibition; a room to
rent; a school play; a free guitar course; switching off my phone for a week; our new website; a football tournament;
a seed swap; a volunteer day at the animal shelter; a data science meetup
""")

_CODE_TASKS = _items("""
checks whether a word is a palindrome; counts the words in a text file; finds the second largest number in a list;
merges two sorted lists; reverses a linked list; removes duplicates but keeps the order; validates an email address;
converts Roman numerals to integers; generates Fibonacci numbers; finds all prime numbers below n; flattens a nested
list; groups a list of dates by month; reads a CSV file and prints the average of a column; sorts people by surname;
finds the most common letter in a string; computes the factorial of a number; checks whether brackets are balanced;
implements binary search; implements a stack; implements a queue with two stacks; implements an LRU cache; parses a
simple log file; renames all photos in a folder by date; downloads a web page and lists its links; retries a network
call with backoff; limits calls to ten per second; converts Celsius to Fahrenheit; calculates the distance between two
points; rotates a matrix by ninety degrees; transposes a matrix; counts islands in a grid; finds the shortest path in
a graph; traverses a binary tree in level order; computes the depth of a binary tree; splits a list into chunks;
formats a number with thousands separators; turns a title into a URL slug; compares two version numbers; shuffles a
deck of cards; plays rock, paper, scissors; simulates rolling two dice; draws a multiplication table; counts vowels;
encodes text with a Caesar cipher; finds anagrams in a list of words; computes a moving average; converts JSON to CSV;
checks a password's strength; calculates loan payments; prints a calendar for a month; solves a Sudoku; finds missing
numbers in a sequence; converts seconds to hours, minutes and seconds; swaps the keys and values of a dictionary;
memoises another function; measures how long a call takes; writes a message to a log file; watches a folder for new
files; capitalises each word of a sentence; computes the greatest common divisor; finds the longest common prefix
""")

_CODE_TOPICS = _items("""
list comprehensions in Python; decorators in Python; generators in Python; async and await; type hints in Python;
context managers; dataclasses; the difference between == and is in Python; virtual environments; closures in
JavaScript; promises in JavaScript; arrow functions; flexbox in CSS; SQL joins; SQL indexes; database transactions;
pointers in C; ownership in Rust; goroutines in Go; interfaces in Java; lambda functions; regular expressions; git
rebase; git branches; Makefiles; Dockerfiles; environment variables; bash pipes; exit codes; exception handling;
dependency injection; inheritance and composition; hash maps; quicksort; merge sort; dynamic programming; unit tests
with pytest; mocking in tests; logging in Python; pandas data frames; NumPy broadcasting; HTTP status codes; CORS
""")

_QUERIES = _items("""
lists the ten best customers by revenue; counts orders per month; finds customers without an order; finds duplicate
email addresses; shows the newest login of each user; adds a column for the phone number; computes the average price
per category; deletes sessions older than thirty days; joins books with their authors; ranks students by score in each
class
""")

WORDS: dict[str, tuple[str, ...]] = {
    "concept": _CONCEPTS,
    "machine": _MACHINES,
    "event": _EVENTS,
    "question": _QUESTIONS,
    "task": _TASKS,
    "pair": _PAIRS,
    "listable": _LISTABLES,
    "hero": _HEROES,
    "setting": _SETTINGS,
    "muse": _MUSES,
    "product": _PRODUCTS,
    "person": _PEOPLE,
    "purpose": _PURPOSES,
    "post": _POSTS,
    "code_task": _CODE_TASKS,
    "code_topic": _CODE_TOPICS,
    "query": _QUERIES,
    "language": ("Python", "Python", "Python", "JavaScript", "TypeScript", "Java", "Go", "Rust", "C", "C++", "Bash"),
    "tone": _items("friendly; formal; short; warm; polite but firm; cheerful; professional; humorous; plain; sincere"),
    "verse": _items("short poem; haiku; limerick; free-verse poem; rhyming poem; sonnet; song lyric; four-line verse"),
    "genre": _items(
        "short story; fairy tale; detective story; bedtime story; science fiction scene; ghost story; fable"
    ),
    "audience": _items("""
a ten-year-old; a beginner; a curious teenager; someone with no background; my grandparents; a first-year student;
a busy manager; an expert in another field; a class of twelve-year-olds; a non-native speaker"""),
    "tongue": _items("Spanish; French; German; Italian; Portuguese; Dutch; Polish; Swedish"),
    "name": _items("""
Anna; Tomas; Leila; Jonas; Priya; Marco; Sofia; Kofi; Elin; Rafael; Mei; Oskar; Nadia; Paul; Ines; David; Yuki; Clara;
Samir; Hanna; Luis; Greta; Amir; Ruth; Felix"""),
    "city": _items("Oslo; Porto; Vienna; Leeds; Turin; Ghent; Bergen; Lyon; Krakow; Seville; Bristol; Zagreb; Riga"),
    "day": _items("Monday; Tuesday; Wednesday; Thursday; Friday; Saturday; Sunday"),
    "month": _items("January; February; March; April; May; June; July; August; September; October; November; December"),
    "sequence": _items("""
2, 4, 8, 16; 1, 4, 9, 16; 1, 1, 2, 3, 5; 3, 6, 9, 12; 2, 3, 5, 7, 11; 1, 3, 6, 10; 81, 27, 9, 3; 5, 10, 20, 40;
100, 95, 85, 70; 1, 8, 27, 64; 7, 14, 21, 28; 2, 6, 12, 20; 64, 32, 16, 8; 1, 2, 6, 24; 50, 44, 38, 32"""),
    "item": _items(
        "pencils; notebooks; apples; tickets; chairs; oranges; candles; stamps; mugs; bricks; marbles; cakes"
    ),
}
