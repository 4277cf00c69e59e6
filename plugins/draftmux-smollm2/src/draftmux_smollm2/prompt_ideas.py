"""Small Python functions that code prompts ask for: names, kinds of parameters, what they do, an expression.

An idea is `names :: kinds -> type :: expression` and one or two texts, each behind ` ## `. A, B and C stand for the
parameters in the expression, {0}, {1} and {2} in the texts. Must not know how prompts are worded.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from draftmux_smollm2.prompt_words import lines, pool

IDEAS = lines(r"""
total_over sum_above add_if_greater :: ints n -> int :: sum(x for x in A if x > B) ## Add up the entries of {0} that
  are greater than {1}. ## Return the sum of all values in {0} larger than {1}.
every_other pick_alternate skip_items :: words -> List[str] :: A[::2] ## Return every second item of {0}, starting
  with the first one.
chunk split_into_groups batch :: ints k -> List[List[int]] :: [A[i:i + B] for i in range(0, len(A), B)] ## Split {0}
  into groups of {1} items; the last group may be shorter.
swap_ends exchange_ends :: ints -> List[int] :: [A[-1], *A[1:-1], A[0]] ## Return a copy of {0} whose first and last
  elements have traded places.
rotate shift_left turn_left :: ints k -> List[int] :: A[B % len(A):] + A[:B % len(A)] ## Move the first {1} elements
  of {0} to its end and keep their order.
longest_word find_longest :: words -> str :: max(A, key=len) ## Find the longest string in {0}; if several are equally
  long, return the earliest. ## Return the longest entry of {0}.
count_vowel_words vowel_starts :: words -> int :: sum(w[0] in 'aeiou' for w in A) ## Count how many strings in {0}
  begin with a vowel.
initials abbreviate make_acronym :: text -> str :: ''.join(w[0].upper() for w in A.split()) ## Build an abbreviation
  of {0} from the upper-case first letters of its words.
mirror_words reverse_each_word :: text -> str :: ' '.join(w[::-1] for w in A.split()) ## Reverse the letters of every
  word in {0}, but leave the words in their order.
word_lengths measure_words :: text -> Dict[str, int] :: {w: len(w) for w in A.split()} ## Map every word of {0} to the
  number of its letters.
letter_counts tally_letters frequency :: word -> Dict[str, int] :: {x: A.count(x) for x in sorted(set(A))} ## Count
  how often each letter occurs in {0}; the keys are in alphabetical order.
unique_in_order drop_repeats dedupe :: words -> List[str] :: list(dict.fromkeys(A)) ## Remove later repetitions from
  {0} and keep the first occurrence of each item.
repeated_items find_duplicates :: nats -> List[int] :: sorted({x for x in A if A.count(x) > 1}) ## List, in ascending
  order, the numbers that appear more than once in {0}.
spread value_range span :: ints -> int :: max(A) - min(A) ## Return the difference between the largest and the
  smallest number in {0}.
mean_rounded average :: nats -> float :: round(sum(A) / len(A), 2) ## Compute the arithmetic mean of {0}, rounded to
  two decimals.
middle_value median_of :: ints -> float :: (sorted(A)[len(A) // 2] + sorted(A)[(len(A) - 1) // 2]) / 2 ## Return the
  median of {0}. For an even count it is the mean of the two central values.
running_totals cumulative :: ints -> List[int] :: [sum(A[:i + 1]) for i in range(len(A))] ## Return the partial sums
  of {0}: position i holds the sum of the elements up to i.
differences steps_between :: ints -> List[int] :: [y - x for x, y in zip(A, A[1:])] ## Return how much each element of
  {0} differs from the one before it.
is_rising is_ascending goes_up :: ints -> bool :: all(x < y for x, y in zip(A, A[1:])) ## Check whether every element
  of {0} is larger than its predecessor.
clamp_all limit_values :: ints n -> List[int] :: [min(x, B) for x in A] ## Replace every number in {0} that exceeds
  {1} by {1}.
split_even_odd separate_parity :: nats -> Tuple[List[int], List[int]] :: ([x for x in A if x % 2 == 0], [x for x in A
  if x % 2 == 1]) ## Divide {0} into its even and its odd numbers.
index_of_smallest position_of_min :: ints -> int :: A.index(min(A)) ## Return the position of the smallest number in
  {0}.
top_scores best_players leaders :: scores k -> List[str] :: sorted(A, key=A.get, reverse=True)[:B] ## Return the names
  of the {1} highest values in the dictionary {0}, best first.
filter_scores passed_students :: scores n -> List[str] :: sorted(x for x in A if A[x] >= B) ## Return the
  alphabetically sorted names whose value in {0} is at least {1}.
invert_mapping swap_keys_and_values :: scores -> Dict[int, str] :: {A[x]: x for x in A} ## Turn the values of {0} into
  keys and its keys into values; a later key wins.
total_value sum_of_values :: scores -> int :: sum(A.values()) ## Add up all the values of the dictionary {0}.
merge_counts combine_inventories :: scores scores -> Dict[str, int] :: {x: A.get(x, 0) + B.get(x, 0) for x in
  sorted({*A, *B})} ## Combine two dictionaries of counts; counts of names that are in both are added. Keys are
  sorted.
group_by_length bucket_words :: words -> Dict[int, List[str]] :: {x: [w for w in A if len(w) == x] for x in map(len,
  A)} ## Group the strings in {0} by their length.
digit_total sum_digits :: big -> int :: sum(int(x) for x in str(A)) ## Return the sum of the decimal digits of {0}.
digit_product multiply_digits :: big -> int :: math.prod(int(x) for x in str(A)) ## Multiply the decimal digits of {0}
  with each other.
flip_number reverse_integer :: big -> int :: int(str(A)[::-1]) ## Write the digits of {0} in reverse and return the
  result as an integer.
divisors_of list_factors :: n -> List[int] :: [x for x in range(1, A + 1) if A % x == 0] ## List all positive divisors
  of {0} in ascending order.
proper_divisor_sum aliquot :: n -> int :: sum(x for x in range(1, A) if A % x == 0) ## Add up the divisors of {0} that
  are smaller than {0} itself.
count_multiples multiples_below :: big k -> int :: len([x for x in range(1, A) if x % B == 0]) ## Count the positive
  multiples of {1} that are smaller than {0}.
halving_steps steps_to_one :: big -> int :: A.bit_length() - 1 ## Count how often {0} can be halved, rounding down,
  until only 1 is left.
binary_ones count_set_bits :: big -> int :: bin(A).count('1') ## Return how many ones the binary notation of {0} has.
is_square perfect_square_check :: n -> bool :: math.isqrt(A) ** 2 == A ## Tell whether {0} is the square of a whole
  number.
triangle_number stacked_total :: n -> int :: A * (A + 1) // 2 ## Return the sum of all whole numbers from 1 to {0}.
to_celsius convert_temperature :: n -> float :: round((A - 32) * 5 / 9, 1) ## Convert {0} degrees Fahrenheit to
  degrees Celsius, rounded to one decimal.
compound final_balance :: big k -> float :: round(A * (1 + B / 100) ** 2, 2) ## Return what {0} grows to in two years
  at {1} percent interest a year, rounded to cents.
transpose flip_matrix :: matrix -> List[List[int]] :: [list(x) for x in zip(*A)] ## Swap the rows and the columns of
  the rectangular matrix {0}.
row_sums total_per_row :: matrix -> List[int] :: [sum(x) for x in A] ## Return the sum of each row of {0}.
column_maxima largest_per_column :: matrix -> List[int] :: [max(x) for x in zip(*A)] ## Return the largest entry of
  each column of {0}.
diagonal_total trace :: matrix -> int :: sum(A[i][i] for i in range(min(len(A), len(A[0])))) ## Add the entries of the
  main diagonal of {0}.
flatten join_rows :: matrix -> List[int] :: [y for x in A for y in x] ## Put all entries of {0} into one list, row
  after row.
scale_matrix multiply_entries :: matrix k -> List[List[int]] :: [[y * B for y in x] for x in A] ## Multiply every
  entry of {0} with {1}.
turn_right rotate_grid :: matrix -> List[List[int]] :: [list(x) for x in zip(*A[::-1])] ## Turn the grid {0} clockwise
  by ninety degrees.
day_of_year ordinal_day :: date -> int :: datetime.date.fromisoformat(A).timetuple().tm_yday ## Return the number of
  the day within its year for the ISO date {0}.
weekday_name which_day :: date -> str :: calendar.day_name[datetime.date.fromisoformat(A).weekday()] ## Return the
  English name of the weekday of the ISO date {0}.
days_between date_gap :: date date -> int :: abs((datetime.date.fromisoformat(A) -
  datetime.date.fromisoformat(B)).days) ## Count the days from the one ISO date to the other, whichever is earlier.
add_days later_date :: date n -> str :: (datetime.date.fromisoformat(A) + datetime.timedelta(days=B)).isoformat() ##
  Return the ISO date that lies {1} days after {0}.
european_date reformat_date :: date -> str :: '.'.join(A.split('-')[::-1]) ## Rewrite a date such as 2021-04-30 in the
  form 30.04.2021.
to_minutes minutes_since_midnight :: time -> int :: int(A[:2]) * 60 + int(A[3:]) ## Convert the clock time {0} in the
  form HH:MM to minutes after midnight.
format_duration show_minutes :: big -> str :: f'{A // 60}h {A % 60:02d}m' ## Format {0} minutes as hours and minutes,
  for example '2h 05m'.
parse_settings read_pairs :: kv -> Dict[str, str] :: dict(x.split('=') for x in A.split(';')) ## Parse a string of
  settings such as 'mode=fast;level=3' into a dictionary.
parse_numbers read_csv_line :: csv -> List[int] :: [int(x) for x in A.split(',')] ## Read the comma-separated whole
  numbers in {0}.
sum_csv add_listed :: csv -> int :: sum(int(x) for x in A.split(',')) ## Add up the comma-separated whole numbers in
  {0}.
to_snake snake_case_name :: text -> str :: A.lower().replace(' ', '_') ## Turn a title such as 'Monthly Report' into a
  lower-case name with underscores.
to_camel camel_case :: text -> str :: ''.join(w.capitalize() for w in A.split()) ## Join the words of {0}, each with a
  capital first letter.
squeeze collapse_runs :: word -> str :: ''.join(x for i, x in enumerate(A) if i == 0 or A[i - 1] != x) ## Shorten
  every run of equal letters in {0} to a single letter.
mask_text hide_start :: word k -> str :: '*' * max(0, len(A) - B) + A[max(0, len(A) - B):] ## Hide all but the last
  {1} characters of {0} behind asterisks.
pad_center center_with_dashes :: word -> str :: A.center(len(A) + 4, '-') ## Put two dashes on either side of {0}.
common_items shared_entries :: words words -> List[str] :: sorted({*A} & {*B}) ## Return, sorted and without
  repetition, the strings that are in both lists.
missing_items only_in_first :: words words -> List[str] :: [w for w in A if w not in B] ## Return the strings of {0}
  that {1} lacks, in their order.
interleave zip_lists :: ints ints -> List[int] :: [z for x, y in zip(A, B) for z in (x, y)] ## Take elements from {0}
  and {1} in turn until the shorter list ends.
dot weighted_total :: ints ints -> int :: sum(x * y for x, y in zip(A, B)) ## Multiply the elements of {0} and {1} at
  equal positions and add the products.
starts_with_letter pick_by_letter :: words letter -> List[str] :: [w for w in A if w.startswith(B)] ## Keep only those
  strings of {0} that begin with {1}.
replace_letter swap_letter :: text letter -> str :: A.replace(B, '#') ## Replace every {1} in {0} by a hash sign.
has_letter_twice letter_repeats :: word letter -> bool :: A.count(B) >= 2 ## Check whether {1} occurs at least two
  times in {0}.
longest_run longest_streak :: word -> int :: max(len(x) for x, _ in re.findall(r'((.)\2*)', A)) ## Return the length
  of the longest run of equal letters in {0}.
extract_numbers find_integers :: mixed -> List[int] :: [int(x) for x in re.findall(r'\d+', A)] ## Return all whole
  numbers that occur in the text {0}.
strip_digits remove_numbers :: mixed -> str :: re.sub(r'\d', '', A) ## Return {0} without any digits.
caesar_like next_letters :: word -> str :: ''.join('a' if x == 'z' else chr(ord(x) + 1) for x in A) ## Replace every
  letter of {0} by the one that follows it in the alphabet; z becomes a.
""")

_WORDS = pool("""
        river, apple, orange, stone, winter, green, otter, eagle, unit, island, cloud, letter, mirror, kettle,
        ladder, umbrella, ocean, pepper, silver, garden, balloon, coffee, engine, arrow, planet, bottle, yellow,
        summer, tunnel, ivory""")
_PEOPLE = pool("ana, ben, cleo, dan, eva, finn, gus, hugo, iris, jan, kim, leo, mia, ned, ola")


class Kind(NamedTuple):
    """One kind of parameter: its type, the names it goes by, and how an example is drawn."""

    hint: str
    names: Sequence[str]
    draw: Callable[[random.Random], Any]


def _kind(hint: str, names: str, draw: Callable[[random.Random], Any]) -> Kind:
    return Kind(hint, names.split(), draw)


def _ints(rng: random.Random) -> list[int]:
    values = [rng.randint(-9, 30) for _ in range(rng.randint(3, 7))]
    return sorted(values) if rng.random() < 0.25 else values


def _text(rng: random.Random) -> str:
    return " ".join(rng.sample(_WORDS, rng.randint(2, 4)))


def _matrix(rng: random.Random) -> list[list[int]]:
    width = rng.randint(2, 3)
    return [[rng.randint(0, 9) for _ in range(width)] for _ in range(rng.randint(2, 3))]


def _date(rng: random.Random) -> str:
    return (datetime.date(2015, 1, 1) + datetime.timedelta(days=rng.randrange(4000))).isoformat()


def _settings(rng: random.Random) -> str:
    keys = rng.sample(["mode", "level", "color", "size", "host", "retries"], rng.randint(1, 3))
    return ";".join(f"{key}={rng.choice([*_WORDS, '3', '8', '12'])}" for key in keys)


KINDS: Mapping[str, Kind] = {
    "ints": _kind("List[int]", "numbers values data items readings amounts entries elements", _ints),
    "nats": _kind("List[int]", "counts numbers scores points sizes ages", lambda rng: rng.choices(range(1, 13), k=6)),
    "words": _kind(
        "List[str]", "words names labels strings tags titles", lambda rng: rng.sample(_WORDS, rng.randint(3, 5))
    ),
    "word": _kind("str", "word text s name token", lambda rng: rng.choice(_WORDS) + rng.choice(["", "s", "ee", "ll"])),
    "text": _kind("str", "text sentence phrase line title", _text),
    "scores": _kind(
        "Dict[str, int]",
        "scores stock points results prices ratings",
        lambda rng: {name: rng.randint(1, 60) for name in rng.sample(_PEOPLE, rng.randint(2, 4))},
    ),
    "matrix": _kind("List[List[int]]", "matrix grid table rows board", _matrix),
    "n": _kind(
        "int",
        "n limit number amount threshold bound",
        lambda rng: rng.choice([rng.randint(1, 50), rng.randint(2, 7) ** 2]),
    ),
    "k": _kind("int", "k size count step width factor", lambda rng: rng.randint(2, 4)),
    "big": _kind("int", "number value total n quantity", lambda rng: rng.randint(11, 9999)),
    "date": _kind("str", "date day start end due", _date),
    "time": _kind("str", "time clock moment", lambda rng: f"{rng.randrange(24):02d}:{rng.randrange(60):02d}"),
    "kv": _kind("str", "settings line config raw", _settings),
    "csv": _kind("str", "line row text record", lambda rng: ",".join(map(str, _ints(rng)))),
    "letter": _kind("str", "letter char symbol", lambda rng: rng.choice("aeorstl")),
    "mixed": _kind(
        "str",
        "text message note",
        lambda rng: f"{rng.choice(_WORDS)} {rng.randint(2, 99)} {_text(rng)}{rng.randint(0, 9)}",
    ),
}
