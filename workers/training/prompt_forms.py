"""How the prompt set asks: for each kind its share, its sentence forms and the wishes that may follow.

`{name}` is filled from the word lists, `{3-7}` with a whole number of that range, `{same_name}`
with the word last chosen for `{name}`, `{passage}`, `{flawed}` and
`{records}` with a composed text.
"""

from typing import NamedTuple

__all__ = ["KINDS", "OPENERS", "Kind"]


class Kind(NamedTuple):
    """One sort of request: its share of the set, how it is put and what may be asked on top."""

    share: float
    forms: tuple[str, ...]
    wishes: tuple[str, ...]


OPENERS = (
    "Hi!", "Hello!", "Hey there!", "Quick question:", "Please help me with this.", "I have a question.",
    "Good morning.", "I'm curious.", "I need this for tomorrow.", "Sorry if this is basic.", "Can you help?",
    "One more thing:", "I was wondering about something.",
    "Thanks in advance!",
)  # fmt: skip

_LENGTHS = (
    "Answer in {2-5} sentences.", "Keep it short.", "Keep it under {60-200} words.", "One paragraph is enough.",
    "Please be brief.", "Take as much room as you need.", "Use bullet points.", "No more than {3-6} points, please.",
    "Answer as a numbered list.", "Please use simple words.", "Start with the most important point.",
)  # fmt: skip

_EXPLAIN = Kind(
    0.30,
    (
        "{question}?", "{question}?", "{question}?", "{question}? Explain it to {audience}.",
        "My friends and I were arguing: {question}?", "What is the short answer: {question}?",
        "My child asked me: {question}?",
        "{concept}?", "{concept}, briefly.", "{event}: why?", "What is {concept}?", "Explain {concept}.",
        "Explain {concept} in simple terms.",
        "Explain {concept} to {audience}.", "Could you explain {concept} to me, please?", "Tell me about {concept}.",
        "Give me a short introduction to {concept}.", "Why does {concept} matter?",
        "What should I know about {concept}?",
        "I keep hearing about {concept}. What does it mean?", "Describe {concept} in {2-6} sentences.",
        "Give an everyday example of {concept}.", "What do people often get wrong about {concept}?",
        "I have to give a talk on {concept}. What are the key points?", "Teach me {concept} step by step.",
        "Can you give me an analogy for {concept}?", "Define {concept} and give {2-3} examples.",
        "How would you explain {concept} to {audience}?", "What is {concept}, and where do I meet it in daily life?",
        "How does {machine} work?", "Explain how {machine} works, as if to {audience}.",
        "What happens inside or behind {machine}? Give me the main steps.", "Who came up with the idea of {machine}?",
        "Describe the main parts of {machine} and what each does.", "What are the limits of {machine}?",
        "What led to {event}?", "Summarise {event} in {3-6} sentences.", "Why was {event} important?",
        "What were the consequences of {event}?", "Give me a timeline of {event}.", "Tell me the story of {event}.",
        "Which people played a role in {event}?", "Write a short encyclopedia entry about {event}.",
    ),
    (
        *_LENGTHS, "Give one example.", "Give {2-3} examples from daily life.", "Avoid technical terms.",
        "Please include the history.", "I already know the basics.", "I'm preparing for an exam.",
        "Finish with a one-line summary.", "Use a comparison that is easy to remember.",
        "Explain it so that {audience} would follow.", "Then ask me a question to test whether I understood.",
    ),
)  # fmt: skip

_ADVISE = Kind(
    0.15,
    (
        "How do I {task}?", "How can I {task}?", "What is the best way to {task}?", "Help me {task}.",
        "I want to {task}. Where do I start?", "Give me step-by-step instructions to {task}.",
        "What do I need to {task}?", "How long does it take to {task}?", "Any tips to {task}?",
        "I have never tried to {task}. What should I know first?", "What mistakes should I avoid when I {task}?",
        "Make a plan for the next {2-8} weeks to help me {task}.", "Explain to {audience} how to {task}.",
        "Write a short guide: how to {task}.", "What is an easy way to {task} on a small budget?",
        "I tried to {task} and failed twice. What could I do differently?",
        "I promised {name} that I would {task}. What would you suggest?", "Is it hard to {task}?",
        "Give me a checklist so I can {task}.",
    ),
    (
        *_LENGTHS, "I only have {10-50} minutes a day.", "I'm a complete beginner.",
        "I don't want to spend much money.",
        "Explain why each step matters.", "List what I need first.", "Warn me about common mistakes.",
        "I live in a small flat.", "I'm doing this alone.", "Number the steps.", "What should I do first?",
    ),
)  # fmt: skip

_CREATE = Kind(
    0.12,
    (
        "Write a {genre} about {hero}.", "Write a {genre} about {hero} with a surprising ending.",
        "Write a {genre} about {hero} {setting}, in the first person.",
        "Write a {genre} of {100-400} words about {hero}, and give it a title.",
        "Write a {genre} about {hero} {setting}.",
        "Tell me a {genre} about {hero} {setting}.", "Write a {verse} about {muse}.", "{verse}, {muse}",
        "Write a {tone} {verse} about {muse}.", "Compose a {verse} on {muse} for my friend {name}.",
        "Can you write me a {verse} about {muse}?", "Write a dialogue between {hero} and {hero} {setting}.",
        "Write the opening paragraph of a novel about {hero} {setting}.", "Suggest {3-8} slogans for {product}.",
        "Write a catchy slogan for {product}.", "Write a {tone} advert for {product} in {3-6} sentences.",
        "Invent a character: {hero}. Describe looks, habits and a secret.",
        "Continue this story: One evening {setting}, {hero} found a key that fitted no door.",
        "Continue this story: Nobody had seen {name} since {day}. Then a letter came from {city}.",
        "Write a funny birthday rhyme for {name}, who loves {muse}.", "Describe {muse} without naming it.",
        "Write a diary entry by {hero}, written {setting}.", "Write a joke about {hero}.",
        "Write a short scene for the stage: {hero} meets a stranger {setting}.",
        "Make up a myth that explains {muse}.", "Write a {genre} that begins and ends with {muse}.",
    ),
    (
        "Make it funny.", "Use simple language.", "No clichés, please.", "It is for {audience}.",
        "Give me two versions.", "Keep it under {80-300} words.", "Surprise me.", "It may be a little strange.",
    ),
)  # fmt: skip

_LIST = Kind(
    0.13,
    (
        "Give me {3-12} {listable}.", "List {3-12} {listable}.", "What are some {listable}?",
        "Suggest {3-10} {listable} with one sentence each.", "I need {listable}. Any ideas?",
        "Brainstorm {listable}.", "Can you name {3-8} {listable}?",
        "Make a table of {4-8} {listable} with a short note.",
        "Rank your top {3-6} {listable} and say why.", "Please come up with {5-15} {listable}.",
        "{pair}?", "{listable}, please.", "Compare {pair}.",
        "What is the difference between {pair}?", "Compare {pair} in a table.",
        "What are the pros and cons of {pair}?", "How do I choose between {pair}?",
        "Name {3-5} differences between {pair}.", "What do {pair} have in common?",
        "Explain to {audience} how {pair} differ.", "List the advantages and disadvantages of {pair}.",
        "Name {3-8} facts about {concept}.", "List {3-6} interesting facts about {event}.",
        "Give me {3-8} quiz questions with answers about {concept}.",
        "Write {3-6} multiple-choice questions about {event}.",
        "Give {3-7} reasons why someone would want to {task}.",
    ),
    (
        "Keep it short.", "Please use simple words.", "No explanations, just the list.",
        "Sort them from easy to hard.", "Explain each in one sentence.",
        "Please include some unusual ones.", "Put the best one first.", "Format the answer as a Markdown table.",
        "Answer as JSON.", "Group them into categories.",
    ),
)  # fmt: skip

_MESSAGE = Kind(
    0.08,
    (
        "Write an email to {person} {purpose}.", "Write a {tone} email to {person} {purpose}.",
        "Draft a {tone} letter to {person} {purpose}.", "Help me write a message to {person} {purpose}.",
        "I need a {tone} text message to {person} {purpose}.", "Can you draft a note to {person} {purpose}?",
        "Write a letter to {person} {purpose}. My name is {name}.",
        "Write an email to {person} {purpose}, with a subject line.",
        "Write an email to {person} {purpose}, and mention that I will be away until {day}.",
        "Write a reply to {person}, who invited me for {day}. I cannot come.",
        "Write a social media post about {post}.", "Write a {tone} post about {post}.",
        "Write a short post for people in {city} about {post}.", "Write a {tone} message to friends about {post}.",
        "Write a blog introduction about {post}.", "Draft a newsletter item about {post}.",
        "Write a speech of about {1-3} minutes about {post}.", "Write three versions of a post about {post}.",
    ),
    (
        "Keep it under {50-150} words.", "No emojis, please.",
        "Make it sound natural.", "Use everyday words.",
        "Leave blanks for the details.", "Two short paragraphs, please.", "End with a clear question.",
    ),
)  # fmt: skip

_CODE = Kind(
    0.10,
    (
        "Write a Python function that {code_task}.", "Write a {language} function that {code_task}.",
        "Write a {language} program that {code_task}.", "In {language}, write code that {code_task}.",
        "Can you show me {language} code that {code_task}?", "I need a small script in {language} that {code_task}.",
        "Implement a {language} function that {code_task}, without external libraries.",
        "Write a Python function that {code_task}, with type hints and a docstring.",
        "Write pytest tests for a function that {code_task}.",
        "Write a {language} function that {code_task}. What is its time complexity?",
        "Write a {language} function that {code_task}. It must be fast for {1000-90000} items.",
        "Write a {language} function that {code_task}. Handle bad input.",
        "Show two ways to write a {language} function that {code_task}.",
        "Write pseudocode for a routine that {code_task}.", "How would you test a function that {code_task}?",
        "Explain {code_topic} with an example.", "Show me a short example of {code_topic}.",
        "When should I use {code_topic}?", "What are common mistakes with {code_topic}?",
        "Give me an exercise with a solution on {code_topic}.", "Write a SQL query that {query}.",
        "Write a SQL query that {query}, and explain each line.",
        "Write a regular expression that matches a date like {1-28} {month} {1950-2030}, and explain it.",
        "Write an HTML page for {product} with a heading, a paragraph and a list.",
        "Write JSON for {3-5} users with a name, a city and an age.",
    ),
    (
        "Add comments.", "Explain how it works.", "Keep it as short as possible.", "Use clear names.",
        "I'm new to programming.", "Give an example.", "Mention common pitfalls.", "Explain your choices briefly.",
    ),
)  # fmt: skip

_EDIT = Kind(
    0.08,
    (
        "Summarise this text in one sentence:\n\n{passage}", "Summarise the following in {2-3} sentences:\n\n{passage}",
        "Rewrite this in a {tone} tone:\n\n{passage}", "Make this shorter:\n\n{passage}",
        "Rewrite the following for {audience}:\n\n{passage}", "{passage}\n\nTurn this into bullet points.",
        "{passage}\n\nGive this text a title.", "Simplify this text:\n\n{passage}",
        "Correct the mistakes in this text:\n\n{flawed}", "Please fix spelling and grammar: {flawed}",
        "{flawed}\n\nCorrect this and list what you changed.", "Proofread this for me:\n\n{flawed}",
        "Translate into {tongue}:\n\n{passage}", "Translate the first sentence into {tongue}: \"{passage}\"",
        "Rewrite this in the past tense:\n\n{passage}", "Rewrite this in the present tense:\n\n{passage}",
        "Which names, numbers and dates occur here?\n\n{passage}", "What is the main point of this text?\n\n{passage}",
        "Continue this text with two more sentences:\n\n{passage}", "Improve the flow of this paragraph:\n\n{passage}",
        "Turn this into a short email:\n\n{passage}", "Write {2-4} questions that this text answers:\n\n{passage}",
        "Make a Markdown table of this list:\n\n{records}", "Turn these lines into JSON:\n\n{records}",
        "Sort these people by age, oldest first:\n\n{records}", "Convert to CSV with a header line:\n\n{records}",
        "Who in this list lives in {city}?\n\n{records}", "List only the names, in alphabetical order:\n\n{records}",
        "Expand this note into a full paragraph:\n\n{passage}", "Number the sentences of this text:\n\n{passage}",
    ),
    (),
)  # fmt: skip

_REASON = Kind(
    0.04,
    (
        "What is {12-99} times {11-99}?", "What is {5-95} % of {20-900}?", "What is {100-999} plus {100-999}?",
        "Calculate {200-999} minus {20-199}, then divide by {2-9}.", "Is {101-999} a prime number?",
        "{name} has {5-60} {item} and gives {2-4} to each of {2-9} friends. How many {same_item} are left, or missing?",
        "A box holds {6-24} {item}. How many boxes do I need for {50-400} {same_item}?",
        "A train leaves {city} at {6-11}:{10-59} and drives for {35-300} minutes. When does it arrive?",
        "A shirt costs {20-90} euros and is reduced by {5-60} %. What is the new price?",
        "If today is {day}, what day is it in {9-200} days?", "Convert {3-90} miles to kilometres.",
        "Convert {1-40} degrees Celsius to Fahrenheit.", "What is the average of {2-40}, {2-40}, {2-40} and {2-40}?",
        "I save {20-300} euros a month. How long until I have {1000-9000} euros?",
        "A recipe for {2-4} people needs {150-600} grams of flour. How much for {5-12} people?",
        "What number comes next: {sequence}?",
        "Solve for x: {2-9}x + {1-30} = {31-99}.", "A garden is {3-30} m long and {2-20} m wide. What is its area?",
        "A garden is {3-30} m long and {2-20} m wide. How much fence goes around it?",
        "How many ways are there to seat {3-6} people in a row of {6-8} chairs?",
        "All of the {item} in the box are red, and {name} took one out of the box. Is it red?",
        "{name} is {2-9} years older than a sister who is {5-40} now. How old will {same_name} be in {3-20} years?",
        "A car uses {4-9} litres per 100 km. How much does it need for {120-900} km?",
        "I roll two dice. How likely is a sum of {3-11}?",
    ),
    ("Show your work.", "Just the number.", "Explain each step.", "Think step by step.", "Check your answer."),
)  # fmt: skip

KINDS: dict[str, Kind] = {
    "explain": _EXPLAIN,
    "advise": _ADVISE,
    "create": _CREATE,
    "list": _LIST,
    "message": _MESSAGE,
    "code": _CODE,
    "edit": _EDIT,
    "reason": _REASON,
}
