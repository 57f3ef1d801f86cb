"""Find the choice that a text states as its answer: a statement counts, a mention does not.

1. The text is made plain: `(B)`, `**B**`, `[B]`, `"B"`, `$B$`, `B)` become a marked letter, `\\boxed{B}` a boxed one.
2. Every letter that stands alone is a mention. The words around it in its sentence show whether it is stated
   (`the answer is B`, `I'll go with B`, `B is correct`, `\\boxed{B}`), denied (`not B`, `rule out B`, `B is wrong`,
   `the incorrect answer is B`), asked (`B?`) or only mentioned.
3. The last statement counts, unless it is taken back (`Wait, no.`) or names a second choice (`B or C`). Without a
   statement, a marked letter counts at the begin or end of the text, or on a line by itself, but not within a sentence.

Statements are read in English, Chinese, Japanese, Korean, Spanish, Portuguese, French, Italian, German, Russian, Arabic
and Hindi.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
MOST_MENTIONS, NEAR = 200, 120  # the last mentions that are read; characters beside each
FIRST_READ, LAST_READ = 2_000, 18_000  # characters of a longer text
_M, _N, _BOX, _END = "\ue000\ue001\ue002\ue003"  # around a marked letter, and around what is boxed


class Ambiguous(ValueError):
    """A text names a choice or several, and none of them as its answer."""


@dataclass(frozen=True, slots=True)
class Stated:
    """A choice's place among the choices. guess: no sentence gives it as the answer outright."""

    place: int
    guess: bool = False


@dataclass(frozen=True, slots=True)
class _Statement:
    """An answer that a sentence states. outright: as in `the answer is B`, unlike `B is correct` or `so B`."""

    at: int
    names: frozenset[str]
    outright: bool


@dataclass(frozen=True, slots=True)
class _Mention:
    """A letter in the plain text, and the text beside it in its sentence."""

    letter: str
    start: int
    end: int
    marked: bool
    before: str
    after: str


_IN_WORD = r"[^\W\u3000-\u9fff\uac00-\ud7af]"  # a letter of a script with spaces, or a digit
# Opening and closing marks; a letter may have a dot, bracket or colon behind it within them.
_OPEN = r"(?:\*{1,3}+|__?+|\$|`|\"|“|'|「|『|（|【|\\?\(|\\?\[)"
_CLOSE = r"(?:\*{1,3}+|__?+|\$|`|\"|”|'|」|』|）|】|\\?\)|\\?\])"
_WRITTEN = re.compile(r"\\(?:text|mathrm|mathbf|textbf|textit|bf)\s?\{([^{}]{0,80})\}")
_BOXED = re.compile(r"\\(?:boxed|fbox)\s?\{([^{}]{0,200})\}")
_MARKED = re.compile(
    rf"(?<!{_IN_WORD}|['’]){_OPEN}{{1,4}}+\s?([A-Z])[.):：]?\s?{_CLOSE}{{1,4}}+|(?<![\w(])([A-Z])\)(?!\w)"
)
_LEFT = re.compile(r"\*\*|__|`|\$|\\[()\[\]]")
# Of a word that begins with a letter none is named: `I think`, `C++`, `B-tree`, `A man`.
_PRONOUN = (
    r"I\s(?:think|believe|would|will|am|have|choose|guess|can|do|say|go|pick|see|know|was|rule|eliminate|select)\b"
)
_ARTICLE = (
    r"(?<!ption\s)(?<!hoice\s)A(?=[ ](?!(?:because|since|as|for|is|was|and|or|but|with|which|due|given|fits|remains"
    r"|seems|cannot|o|y|e|et|ou|und|oder)\b)[a-z])"
)
_MENTION = re.compile(
    rf"{_M}([A-Z]){_N}|(?<!{_IN_WORD}|['’.])(?!{_PRONOUN})(?!{_ARTICLE})([A-Z])(?!{_IN_WORD}|[+#'’]|-\w|\.\w)"
    rf"|(?<=[:：\s\"'(])([a-z])(?=[\"').\]}}]{{0,3}}\s{{0,3}}(?:\Z|\n))"
)
_ANS = re.compile(r"\bans\.", re.IGNORECASE)
_SENTENCE = re.compile(r"[.!?。！？।؟;；\n]+(?=\s|\Z|[^\w\s])|[。！？।؟；\n]")

_NOUN = (
    r"(?:answer|ans|option|choice|response|selection|solution|final|pick|guess|(?:correct|right|best|true)\s(?:one"
    r"|letter))"
)
_OF = (
    r"(?:,?\s(?:to|for|of|here|in|this|that|the|your|my|given|problem|question|above|below|therefore|then|thus|hence|so)\b"
    r",?){0,7}"
)
_SURE = (
    r"(?:\s(?:therefore|thus|hence|then|so|clearly|definitely|probably|likely|most|indeed|actually|simply|just|now|only|"
    r"still|really|truly|obviously|certainly|surely|going|to|be|with|the|letter|option|choice|answer|number|either|both|:)\b,?){0,5}"
)
_COPULA = r"(?:is|are|was|['’]s|would\sbe|should\sbe|must\sbe|has\sto\sbe|will\sbe|(?:seems|appears)\sto\sbe|remains)"
_ABROAD_NOUN = (
    r"(?:respuesta|opción|resposta|opção|alternativa|risposta|opzione|réponse|option|antwort|lösung|ответ|вариант|correcta|correta|corretta|giusta|richtig|верно|правильно"
    r"|الإجابة|الجواب|الخيار|उत्तर|विकल्प|जवाब)"
)
_ABROAD_IS = r"(?:es|é|è|est|ist|lautet|wäre|это|هي|هو|है|sería|seria|sarebbe|serait|[:：—–-])"
_ABROAD_SURE = (
    r"(?:\s(?:donc|alors|bien|entonces|pues|portanto|então|quindi|dunque|also|daher|somit|folglich|следовательно|значит"
    r"|claramente|clairement|évidemment|l['’]option|l['’]opzione|la|le|el|a|o|il|die|der|lettre|letra|lettera|buchstabe|буква|option|opción|opção"
    r"|alternativa|opzione|вариант|الخيار|विकल्प)){0,4}"
)
_ABROAD_CHOOSE = (
    r"(?:elijo|escojo|elegiría|escogería|escolho|escolheria|choisis|choisirais|opte\spour|scelgo|sceglierei|wähle|nehme"
    r"|выбираю|выбрал|أختار)"
)
_STATED_BEFORE = re.compile(
    rf"(?:(?<![A-Za-z]){_NOUN}[\"']?{_OF}\s{{0,3}}(?:[:：=→>—–-]|{_COPULA}\b){_SURE}"
    rf"|\bchang\w{{1,3}}\s(?:my|the|this)\sanswer\sto{_SURE}"
    rf"|\b(?:I|we)(?:['’](?:ll|d|m|re)|\s(?:would|will|am|are|have|must|shall))?(?:\s(?:therefore|thus|then|so|to))?"
    rf"\s(?:choose|pick|select|go|going|say|answer|vote|opt|settle)(?:\s(?:with|for|on|that|it))?{_SURE}"
    rf"|(?:正确|最佳|最终|正しい|正確)?的?(?:答案|选项|選項|选择|選択肢|正解|答え|正答|정답|답)(?:应该|應該|应|應|就)?"
    rf"(?:是|为|為|は|은|는|선택지)?\s?[:：]?\s?(?:选项|選項)?"
    rf"|(?:[故应應]|所以|因此|我|答案|应该|應該)(?:选|選)(?:择|擇)?\s?[:：]?|(?:选|選)(?:择|擇)?|(?:[,，]\s?|而)(?:应该|應該)?是"
    rf"|\b{_ABROAD_NOUN}(?:\s\w{{1,14}}){{0,2}}?\s{{0,2}}{_ABROAD_IS}{_ABROAD_SURE}|सही\s(?:उत्तर|विकल्प)|उत्तर\s{{0,2}}(?:विकल्प\s?)?|\b{_ABROAD_CHOOSE}{_ABROAD_SURE})[\s:：\"'“(\[】」』>]{{0,4}}\Z",
    re.IGNORECASE,
)
# These state a choice only where the clause ends with it: `so B.`, but not `so B is wrong`.
_CONCLUDED_BEFORE = re.compile(
    rf"(?:\b(?:so|therefore|hence|thus|ergo|then|rather|but|leaving|leaves|left|conclude|conclusion|wait|i\smean"
    r"|definitely|probably|certainly|surely|clearly|namely|matches|corresponds\sto|choose|pick|select|mark"
    rf"|would\s(?:answer|say)|é\sa|es\sla|è\sla|ist\sdie|das\sist|c['’]est(?:\sla(?:\sréponse)?)?),?"
    rf"(?:\s(?:it|this|that|us|only|with|must|be|is)){{0,3}}{_SURE}"
    rf"|\b(?:it|this|that|which)(?:['’]s|\s{_COPULA}){_SURE}|\bI(?:['’]m)?\s(?:think|believe|guess|sure)(?:\sit['’]?s?)?{_SURE}"
    rf"|\bmust\sbe{_SURE})[\s:：\"'“]{{0,4}}\Z",
    re.IGNORECASE,
)
_CLAUSE_ENDS = re.compile(r"\s?(?:[.,;:!)。，；]|\Z|\n|(?:or|and|because|since|as|for|not|rather)\b)", re.IGNORECASE)
_STATED_AFTER = re.compile(
    r"[:,]?\s(?:is|are|was|seems|appears|must\sbe|would\sbe|has\sto\sbe)(?:\s(?:both|all|to|be|clearly|definitely|indeed|"
    r"therefore|thus|the|most|my|likely|probably|surely|obviously|only|final|one|in\sfact)){0,5}"
    r"\s(?:correct|right|best|answer|solution)\b"
    r"|\sit\sis(?=\s?[.!,;]|\Z)|\s(?:remains|fits(?:\sbest)?|is\sleft|works(?:\sbest)?|wins)\b"
    r"|\s?(?:是正确|为正确|正确|が正解|が正しい|を選|(?:를|을)\s?(?:선택|고르|고릅)|(?:이|가|번이)?\s?정답)"
    r"|\s(?:es|é|è|est|ist|является)\s(?:la\s|a\s|die\s|il\s|le\s)?(?:correcta|correta|corretta|giusta|bonne|correcte|juste|richtig|правильн|верн)"
    r"|\s(?:सही\sहै|صحيح|richtig\b)",
    re.IGNORECASE,
)
_DENIED_BEFORE = re.compile(
    r"(?:\b(?:not|never|neither|nor|(?:is|are|was|were|ca|could|wo|should|would)n['’]t(?:\sbe)?|cannot(?:\sbe)?"
    r"|rul(?:e|es|ed|ing)\s(?:out)?|eliminat\w{1,4}|exclud\w{1,4}|discard\w{0,3}|reject\w{0,3}|dismiss\w{0,3}|discount\w{0,3}"
    r"|cross(?:ed|ing)?\s(?:out|off)|except|besides|rather\sthan|instead\sof|unlike|than|(?:anything|all|everything)\sbut"
    r"|without|avoid\w{0,3}|no\slonger|wrong|incorrect|false|nicht|pas|non|não|não\sé|no\ses|не|ليست|ليس)\b"
    r"|不是|不选|不選|不能选|不能選|排除|并非|並非)(?:\s?(?:be|answer|option|choice|letter|both|either|the|it|is|out|[:(\"'“])){0,4}\s?\Z",
    re.IGNORECASE,
)
# Before a noun, or within a statement: what makes it one of a wrong choice.
_WRONG_HEAD = re.compile(
    r"(?:\b(?:incorrect|wrong|false|worst|trap|tempting|bad|unlikely|implausible|popular|common|least(?:\s\w{1,12})?"
    r"|your|his|her|their|student['’]s|previous|earlier|initial|opposite|distractor|other|another|(?:second|next)[-\s]best"
    r"|runner-up|mauvaise|fausse|falsche|неправильн\w{1,4}|неверн\w{1,4})\s(?:\w{1,12}\s)?|(?:错误|不正确|錯誤)的?)\Z",
    re.IGNORECASE,
)
_WRONG_WITHIN = re.compile(
    r"\b(?:no|non|não|nicht|pas|не|ليست|ليس|नहीं|n['’]est|incorrecta|incorreta|errata|sbagliata|fausse|falsch)\b",
    re.IGNORECASE,
)
_SUPPOSED = re.compile(
    r"(?:\b(?:if|suppos\w{1,3}|assum\w{1,3}|imagine|whether|although|though|at\sfirst|perhaps|maybe|doubt|nobody|nothing"
    r"|impossible|hardly|not|never|cannot|no\sway|wrong\sto|(?:some|many|most|people|students?|someone|anyone|others"
    r"|(?:you|one)\s(?:might|may|could))\b[^.;,]{0,60}\b(?:think|say|assume|choose|pick|select|argue|guess)s?)\b|n['’]t\b)"
    r"(?:(?!\bbut\b)[^.;,:]){0,80}\Z",
    re.IGNORECASE,
)
_OTHERWISE = re.compile(r"\b(?:if|had|with|without|unless|under|were)\b", re.IGNORECASE)  # before `would be`
_DENIED_AFTER = re.compile(
    r"[:,]?\s?(?:which\s|that\s)?(?:(?:is|are|was|does|do|did|ca|could|wo|would)n['’]t\b|cannot\b|(?:is|are|was|does|do|did|can|could)\snot\b"
    r"|fails?\b|contradicts?\b|(?:['’]s|is|are|was|were|seems?|looks?|sounds?|appears?|can|could|would|may|might|must)\b"
    r"[^;.!?\n]{0,60}?\b(?:wrong|incorrect|false|impossible|tempting|eliminated|ruled\sout|excluded|out|unlikely|irrelevant"
    r"|distractor|trap|mistaken|invalid|absurd|not|too)\b"
    r"|\s?(?:ではない|ではありません|不对|不正确|错|错误|(?:은|는|이|가)?\s?아[니닙닌]|(?:नहीं|गलत)"
    r"|(?:no\ses|non\sè|não\sé|n['’]est\spas|ist\snicht|ist\sfalsch|es\sincorrecta|неверн|неправильн)))",
    re.IGNORECASE,
)
_CHECKED = re.compile(r"[^\n✅✔❌✗✘]{0,80}?(?:[✅✔]|[-–—:(]\s?(?:correct|right|true)\b\W{0,4}(?=\n|\Z))", re.IGNORECASE)
_TAKEN_BACK = re.compile(
    r"(?:hm+[,.… ]{1,4})?(?:wait\b|no[,.!:—-]|no\s?\Z|actually,?\s(?:no|that|it|i)\b|on\ssecond\sthought|scratch\sthat"
    r"|correction\b|oops|sorry\b|i\swas\swrong|i\smade\sa\smistake|that(?:['’]s|\sis)\s(?:wrong|incorrect|not)|let\sme\sre)",
    re.IGNORECASE,
)
_TOGETHER = re.compile(
    rf"{_N}?{_END}?[).:]?\s?(?:,\s?(?:or|and)\s|[,/&、，和或と]|\b(?:or|and|y|o|e|et|ou|und|oder|и|или|و|أو|nor)\b)\s?"
    rf"(?:option\s|choice\s|{_BOX})?{_M}?([A-Z])(?!{_IN_WORD}|[+#'’]|-\w){_N}?"
    rf"(?=\s?(?:[).,;:!?*}}/&\n。，；{_N}{_END}]|\Z"
    r"|(?:or|and|but|because|since|as|for|are|is|do|does|did|can|cannot|both|could|may"
    r"|might)\b))"
)
_ALL_BEFORE = re.compile(rf"{_M}?\b([A-Z]){_N}?\s?(?:,|and|or|&|/)\s(?:and\s|or\s)?\Z")
_CONTRAST = re.compile(r"\b(?:but|yet|however|no|wait|rather|actually|instead|although|though|while)\b", re.IGNORECASE)
_OPTION = re.compile(r"\b(?:option|choice)\s\Z", re.IGNORECASE)
_TO_THE_END = re.compile(rf"[{_N}{_END}.):;!,\s]*\Z")
# What may stand behind the letter that a text begins with: nothing, punctuation, or why; a verb tells of the option.
_GIVES_REASONS = re.compile(r"\s?(?:\Z|\n|[,–—:;.]|-\s|/|&)|\s(?:because|since|as|for|or|and)\b", re.IGNORECASE)
_TELLS = re.compile(r"\s?(?:is|are|was|looks|seems|says|cannot|can|could|would|does|might|may|refers|describes)\b")


_AROUND = _M + _N + " \n\t.,:;)(-–—/&*\"'"
_ALONE_AT_FIRST = re.compile(rf"\s*{_M}?([A-Z]){_N}?[.):]?\s{{0,4}}\n")
_NEXT_QUESTION = re.compile(r"\n\s{0,8}(?:question|q|human|user|problem)\b\s?[0-9]{0,4}\s?[:.]", re.IGNORECASE)


def stated(text: str, choices: Sequence[str]) -> Stated | None:
    """Return the choice that `text` gives as its answer; None if it gives none of them.

    Raises Ambiguous if it names several, takes its answer back, denies one and states none, or only mentions one in
    passing."""
    if (on := _NEXT_QUESTION.search(text)) and text[: on.start()].strip():  # a base model asks itself the next one
        with suppress(Ambiguous):
            if answered := stated(text[: on.start()], choices):
                return answered
    letters, plain = LETTERS[: len(choices)], _plain(text)
    mentions = [*_mentions(plain)]
    statements = sorted([*_by_letter(plain, mentions), *_by_text(plain, choices)], key=lambda statement: statement.at)
    if statements:
        return _last_of(plain, statements, letters)
    return _unstated(plain, mentions, letters)


def _unstated(plain: str, mentions: Sequence[_Mention], letters: str) -> Stated | None:
    """Return the letter that stands alone in a text without a statement; None if no letter is offered.

    Ambiguous if it names several letters, or takes one back.
    """
    backs = [
        ending.end()
        for ending in _SENTENCE.finditer(plain)
        if _TAKEN_BACK.match(plain[ending.end() : ending.end() + NEAR].lstrip())
    ]
    offered = [
        mention
        for mention in mentions
        if mention.letter in letters and not _asked(mention) and mention.start >= max(backs, default=0)
    ]
    denied = {mention.letter for mention in offered if _denied(plain, mention)}
    remaining = [mention for mention in offered if mention.letter not in denied]
    standing_alone = [mention for mention in remaining if _stands_alone(plain, mention)]
    first = any(not plain[: mention.start].strip(_AROUND) for mention in standing_alone)
    marked_letters = {
        mention.letter
        for mention in remaining
        if mention.marked and (not first or not mention.before.strip(_AROUND + LETTERS))
    }
    joined_letters = {
        letter for mention in offered if len(names := _with(plain, mention)) > 1 for letter in names & {*letters}
    }
    named_letters = marked_letters | joined_letters | {mention.letter for mention in standing_alone}
    if len(named_letters) == 1 and standing_alone:
        return Stated(letters.index(named_letters.pop()), guess=True)
    if named_letters or denied or backs or any(map(_asked, mentions)):
        names = ", ".join(sorted(named_letters | denied)) or "one that it asks for or takes back"
        raise Ambiguous(f"it names {names}, and none of them as its answer alone")
    return None


def _plain(text: str) -> str:
    """Return a text's beginning and end as the patterns need it: letters marked or boxed in private characters."""
    if len(text) > FIRST_READ + LAST_READ:
        text = f"{text[:FIRST_READ]}\n\n{text[-LAST_READ:]}"
    text = text if text.isascii() else unicodedata.normalize("NFKC", text)
    for _ in range(2):
        text = _WRITTEN.sub(r"\1", text)
    text = _BOXED.sub(rf"{_BOX}\1{_END}", text)
    text = _MARKED.sub(lambda match: f"{_M}{match[1] or match[2]}{_N}", text)
    return _ANS.sub("answer:", _LEFT.sub("", text))


def _mentions(plain: str) -> Iterator[_Mention]:
    """Yield the last mentions of letters, each with the text around it, before it only within its sentence."""
    begins = [0, *(ending.end() for ending in _SENTENCE.finditer(plain))]
    for match in deque(_MENTION.finditer(plain), MOST_MENTIONS):
        begin = begins[bisect_right(begins, match.start()) - 1]
        before = plain[max(begin, match.start() - NEAR) : match.start()]
        letter = (match[1] or match[2] or match[3]).upper()
        alone = not before.strip() and bool(re.match(r"[.:)]", plain[match.end() : match.end() + 1]))
        yield _Mention(
            letter=letter,
            start=match.start(),
            end=match.end(),
            marked=bool(match[1]) or alone or bool(_OPTION.search(before)),
            before=before,
            after=plain[match.end() : match.end() + NEAR],
        )


def _asked(mention: _Mention) -> bool:
    return mention.after.lstrip(_N + _END + ").")[:1] in ("?", "？")


def _denied(plain: str, mention: _Mention) -> bool:
    _, end = _listed(plain, mention)
    cue = _STATED_BEFORE.search(mention.before)
    return bool(
        _DENIED_BEFORE.search(mention.before) or _DENIED_AFTER.match(plain[end : end + NEAR].lstrip(_N + _END))
    ) or (cue is not None and _of_a_wrong(mention.before, cue))


def _is_stated(mention: _Mention) -> bool | None:
    """Return whether the sentence gives the letter as the answer: True outright, False otherwise, None not at all."""
    after = mention.after.lstrip(_N + _END)
    if _asked(mention) or _DENIED_BEFORE.search(mention.before):
        return None
    if mention.before.endswith(_BOX):
        return True
    if not mention.before.strip(_AROUND) and _CHECKED.match(after):
        return False
    if says := _STATED_AFTER.match(after):
        return None if _SUPPOSED.search(mention.before) else says[0].casefold().endswith("answer")
    if _DENIED_AFTER.match(after):
        return None
    if cue := _STATED_BEFORE.search(mention.before):
        return None if _of_a_wrong(mention.before, cue) else True
    cue = _CONCLUDED_BEFORE.search(mention.before) if _CLAUSE_ENDS.match(after) else None
    return None if cue is None or _of_a_wrong(mention.before, cue) else False


def _of_a_wrong(before: str, cue: re.Match[str]) -> bool:
    """Return whether the statement is about a wrong choice, or somebody else's."""
    otherwise = "would" in cue[0].casefold() and _OTHERWISE.search(before[: cue.start()])
    denied = _WRONG_HEAD.search(before[: cue.start()]) or _SUPPOSED.search(before) or _WRONG_WITHIN.search(cue[0])
    return bool(otherwise or denied)


def _by_letter(plain: str, mentions: Sequence[_Mention]) -> Iterator[_Statement]:
    """Yield each statement of a letter, with the letters stated together with it."""
    for mention in mentions:
        if (outright := _is_stated(mention)) is not None:
            before = (
                _ALL_BEFORE.search(mention.before) if _STATED_AFTER.match(mention.after.lstrip(_N + _END)) else None
            )
            names = frozenset((*_with(plain, mention), *([before[1]] if before else ())))
            yield _Statement(mention.start, names, outright)


def _with(plain: str, mention: _Mention) -> set[str]:
    """The letter and those that a list behind it names, unless that list is of wrong ones."""
    names, end = _listed(plain, mention)
    return {mention.letter} if _DENIED_AFTER.match(plain[end : end + NEAR].lstrip(_N + _END)) else names


def _listed(plain: str, mention: _Mention) -> tuple[set[str], int]:
    """The letters of the list that begins with this one, and where it ends."""
    names, end = {mention.letter}, mention.end
    while another := _TOGETHER.match(plain, end):
        names.add(another[1])
        end = another.end()
    return names, end


# Behind a choice's own text: it goes on as another word or number, or is denied.
_GOES_ON = re.compile(r"[.,/^%:–-]?\w|\s(?:is|was|thousand|million|billion)\b", re.IGNORECASE)
_IS_THE_ANSWER = re.compile(r"\sis\s(?:the\s)?(?:correct\s|right\s|best\s)?(?:answer|choice|option)\b", re.IGNORECASE)


def _by_text(plain: str, choices: Sequence[str]) -> Iterator[_Statement]:
    """Yield the places where a choice's own text is stated; of several that begin at one place the longest."""
    longest: dict[int, int] = {}
    for index, choice in enumerate(choices):
        if len(choice) < 2:
            continue
        for match in islice(re.finditer(re.escape(choice), plain, re.IGNORECASE), 50):
            before = plain[max(0, match.start() - NEAR) : match.start()].rpartition("\n")[2]
            after = plain[match.end() : match.end() + NEAR]
            if before[-1:].isalnum() or (
                match.start() in longest and len(choice) < len(choices[longest[match.start()]])
            ):
                continue
            cue = _STATED_BEFORE.search(before)
            if cue is None and _CLAUSE_ENDS.match(after):
                cue = _CONCLUDED_BEFORE.search(before)
            precedes = cue is not None and not _of_a_wrong(before, cue) and not _GOES_ON.match(after)
            follows = _IS_THE_ANSWER.match(after) and not _SUPPOSED.search(before) and not _DENIED_BEFORE.search(before)
            if (precedes and not _DENIED_AFTER.match(after)) or follows:
                longest[match.start()] = index
    for start, index in longest.items():
        yield _Statement(start, frozenset((LETTERS[index] if index < len(LETTERS) else f"#{index}",)), outright=True)


def _last_of(plain: str, statements: Sequence[_Statement], letters: str) -> Stated | None:
    """Return the last statement's choice; None for a letter that is no choice. Ambiguous if the statements disagree.

    `B is correct` behind an outright `the answer is A` takes nothing back by itself.
    """
    last = statements[-1]
    if len(last.names) > 1:
        raise Ambiguous(f"it names {', '.join(sorted(last.names))}, and none of them as its answer alone")
    for earlier in statements[:-1]:
        between = plain[earlier.at : last.at]
        goes_on = not _SENTENCE.search(between) or (earlier.outright and not last.outright)
        if earlier.names != last.names and goes_on and not _CONTRAST.search(between):
            names = ", ".join(sorted(earlier.names | last.names))
            raise Ambiguous(f"it names {names}, and none of them as its answer alone")
    following = [
        plain[ending.end() : ending.end() + NEAR].lstrip() for ending in islice(_SENTENCE.finditer(plain, last.at), 3)
    ]
    if any(_TAKEN_BACK.match(sentence) for sentence in following):
        raise Ambiguous(f"it names {', '.join(sorted(last.names))} and takes that back")
    (name,) = last.names
    head = _ALONE_AT_FIRST.match(plain)
    if head and not last.outright and head[1] != name:
        raise Ambiguous(f"it begins with {head[1]} and then names {name}")
    if name.startswith("#"):
        return Stated(int(name[1:]))
    return Stated(letters.index(name), guess=not last.outright) if name in letters else None


def _stands_alone(plain: str, mention: _Mention) -> bool:
    """Return whether the letter begins or ends the text, is a line, or is a line's head."""
    line = plain[plain.rfind("\n", 0, mention.start) + 1 : mention.start]
    head = re.sub(r"(?i)^\W*(?:(?:both|either)\s)?(?:(?:option|choice|answer)\s)?\W*", "", line)
    after = mention.after.lstrip(_N + _END)
    if not head:
        begins = not plain[: mention.start - len(line)].strip()
        rest_of_line = mention.after.partition("\n")[0]
        ends_line = bool(_TO_THE_END.match(rest_of_line))
        marked = mention.marked and not _TELLS.match(after) if begins or mention.after[:1] in (".", ":") else False
        return ends_line or (begins and bool(_GIVES_REASONS.match(after))) or marked
    lead = _OPTION.sub("", line).rstrip()
    return mention.marked and bool(_TO_THE_END.match(mention.after)) and lead[-1:] in tuple(":,—–-.?!")
