"""Tell an answer that a text gives from one that it denies, takes back, asks for, or only thinks of."""

from __future__ import annotations

import re

NEAR = 160  # characters on each side of an answer that are read
_IT = "\ue000"  # the answer's place
_REST = r"\b[^.;,:\n]{0,40}"
# Up to the answer, without a verb that gives it: in `those who do not pass are 12` it is not denied.
_NO_VERB = r"\b(?:(?!\b(?:is|are|was|were|be|equals?|gives?|makes?|leaves?|that|so|but)\b)[^.;,:=\n]){0,40}"
# Up to the answer, without a turn: `some say 11 but it is 12` gives it.
_NO_TURN = r"\b(?:(?!\b(?:but|so|yet|though|although|while|whereas|however|when)\b)[^.;,:\n]){0,40}"
_OTHERS = r"(?:some|others|many|most|people|students?)(?:\sstudents|\speople)?"
_HARD = r"(?!\s(?:\w{1,10}\s)?(?:hard|difficult|surprising|necessary)\b)"  # `it is not hard to see 12` gives it
_OPENS = r"(?:\s(?:be|equal|to|simply|just|exactly))*(?:[ \t$*({\[]|\\(?:boxed|fbox|text|\(|\[))*"
_CLOSES = r"[$*})\]\s,—–-]{0,6}"
_BEFORE = "|".join((
    rf"(?:\b(?:not|never|cannot|neither|nor|nobody|none|no\sone|hardly|unlike)\b|n['’]t){_HARD}{_NO_VERB}",
    r"\b(?:no\slonger|(?:any|every)(?:thing|\s\w{1,12})\sbut|instead\sof|rather\sthan|unlikely|almost|nearly|close\sto"
    r"|except(?:\sfor)?|other\sthan|apart\sfrom|besides|ignore(?:\sthe)?)",
    r"\beither\b(?:(?!\b(?:is|gives?|makes?|leaves?|boxed|fbox)\b)[^.;,:\n]){0,40}\bor\s(?:\w{1,8}\s?=)?"
    r"|[0-9][$)* ]{0,4}\bor\s(?:\w{1,3}\s?=)?|\bpossibly",
    r"\b(?:nicht|pas|no\s(?:es|son)|n[ãa]o\s(?:é|são)|non\s(?:è|sono)|не)|不是|并非|並非",
    r"\b(?:rul\w{1,4}\sout|eliminat\w{1,4}|exclud\w{1,4}|reject\w{0,3}|discard\w{0,3})",
    r"\banswer\sis\s(?:less|more|greater|fewer|smaller|larger)\sthan",
    r"\b(?:wrong|incorrect|false)\s(?:answer|result|value)\s(?:is|was|would\sbe|:)",
    rf"\bmistake\s(?:is|would\sbe){_REST}|\b(?:maybe|perhaps|refuse|decline){_REST}|\bkey\ssays{_REST}",
    rf"\bif\s(?:the\s(?:answer|result|value)\s(?:is|was|were)|(?:I|we|you|they)\s(?:said|answered|guessed){_REST})",
    rf"\b(?:(?:one|you)|{_OTHERS})(?:\s(?:may|might|could|would|often|usually))?"
    rf"\s(?:say|think|claim|believe|guess|assume|answer)s?{_NO_TURN}|\b{_OTHERS}(?:\s(?:may|might))?\sget{_NO_TURN}",
    rf"(?:\b(?:false|(?<!no\s)doubt|unsure|impossible|cannot\s(?:say|tell)|nobody|no\sone)"
    rf"|(?:\bnot|n['’]t)\s(?:sure|know|true|say|tell)){_REST}\b(?:that|whether|if|for){_REST}",
))  # fmt: skip
_AFTER = (
    rf"{_CLOSES}(?:\s?[a-z]{{1,12}}\s)?(?:"
    r"(?:is|was|seems|looks|can(?:not|['’]t)\sbe)(?:\sclearly|\salso)?\s(?:wrong|incorrect|false|impossible|ruled\sout"
    r"|not\s(?:the\s|an?\s)?(?:right|correct|answer|solution)|a\s(?:distractor|trap|mistake))"
    r"|do(?:es)?(?:\snot|n['’]t)\s(?:work|fit|hold|satisfy)|ではない|ではありません|이\s아|가\s아)"
)
_DENIED = re.compile(
    rf"(?:{_BEFORE}){_OPENS}{_IT}|{_IT}{_AFTER}|\bwould\sbe{_OPENS}{_IT}{_CLOSES}(?:if|unless)\b", re.IGNORECASE
)
_SPELLED = (
    r"(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|(?:thir|four|fif|six|seven|eigh|nine)teen"
    r"|(?:twen|thir|for|fif|six|seven|eigh|nine)ty)"
)
_CRIES = r"(?:no|nope|please|wait|oh|ah|hmm+|but|sorry|oops|actually|hold\son)"
_TAKEN_BACK = re.compile(
    r"\b(?:(?:that|this|it|the\sabove)(?:\s(?:answer|result|value))?|my\sanswer)(?:['’]s|\s(?:is|was))"
    r"\s(?:wrong|incorrect|mistaken|not\s(?:right|correct|it\b)|off\sby|[a-z]{3,5}\stoo\s(?:many|few))\b"
    r"|\b(?:that|this|it)\s(?:can['’]t|cannot)\sbe\s?(?:right|correct|true|[,.;:!]|\Z)"
    r"|\boops\b|\b(?:scratch|strike)\sthat\b"
    rf"|\b(?:edit|update|rather|wait|make\s(?:that|it)"
    rf"|(?:answer|result|value|it)\s(?:is|should\sbe))\W{{1,3}}{_SPELLED}\b"
    r"|\bI\s(?:was\s(?:wrong|mistaken)|got\s(?:that|it|this)\swrong|messed\sup|retract\s(?:that|it|this)"
    r"|made\san?\s(?:mistake|error)|take\s(?:that|it)\sback"
    r"|mis(?:counted|calculated|read)|stand\scorrected|do(?:\snot|n['’]t)\sthink\sso)\b"
    r"|\bon\ssecond\sthought\b|\bor\srather\b|\bcorrection\s?:"
    r"|\b(?:wait|actually|sorry),?\s(?:no\b(?!\s(?:need|doubt|(?!it\b|that\b|this\b)[a-z]+\s(?:is|was|were))\b)"
    r"|it\s(?:is|should)\b(?!\s(?:(?:be|even|quite)\s)*(?:also|always|noted|mentioned|said|stressed|added|checked|clear"
    r"|easy|worth|correct|right|fine|true|good|the\s(?:only|same))\b))"
    # A second look takes it back, but where it ends well: `Let me recompute: yes, that holds.`
    r"|\blet\sme\sre(?:consider|compute|calculate|do|think)\b"
    r"(?!(?=[^0-9]{0,200}\b(?:yes|holds|match(?:es)?|correct|right|indeed|same|agrees?|works|confirmed|consistent)\b)"
    rf"(?:(?!\b(?:not|no|whether|if|but|should|instead|wrong|half|twice|{_SPELLED})\b|n['’]t)[^0-9]){{0,300}}\Z)"
    # At once behind the answer, or behind a cry.
    rf"|(?:\A[^.,;:!?\n—–-]{{0,30}}|\b{_CRIES})\W{{1,8}}(?:{_CRIES}\b\W{{1,4}}){{0,3}}(?:"
    r"(?:no|nope)\s?(?:[,.:;!—–-]|wait\b|\Z)|I\sdoubt\s(?:it|that)|I\smeant"
    r"|(?:that|this|it|which)(?:['’]s|\s(?:is|was))\s(?:an?|my)\s(?:mistake|error|slip|typo)\b(?!-)"
    r"|(?:that|this|it)\s(?:fails|(?:does(?:\snot|n['’]t)|cannot|can['’]t)\s(?:work|hold|fit|satisfy))"
    r"|my\s(?:mistake|bad|error|apologies)\s?(?:[,.:;!—–-]|\Z)|I\s(?:think|guess|believe|suppose)\snot"
    r"|(?:disregard|ignore|forget)\s(?:that|it|this|the\sabove|my)\b|never\s?mind"
    r"|or\s(?:(?:is|was)\sit|maybe|perhaps|so\sI)"
    r"|(?:(?:certainly|definitely)\s)?not(?:\s(?:at\sall|really|quite))?\s?(?:[,.!]|\Z)"
    r"|I\s(?:forgot|missed)\b)",
    re.IGNORECASE,
)
_CUT = re.compile(
    r"(?:\b(?:and|or|but|we|the|an|is|are|of|to|then|so|with|by|from|that|which|because|since|if|let|plus|minus)"
    r"|\b(?:next|now|then|so|also|finally),"
    r"|(?<![-=+])[-+=×/^(]|\\(?:times|cdot|div|pm)|\\(?:boxed|fbox)\s?\{[^{}]*+)\s*+\Z",
    re.IGNORECASE,
)


def not_meant(before: str, after: str) -> str:
    """Return why the answer between these two parts of a text is not meant as its answer; "" if it is."""
    if "</think>" in after or before.rfind("<think>") > before.rfind("</think>"):
        return "it stands within a thought: the set's `reasoning` says how thoughts are written"
    if _DENIED.search(f"{before[-NEAR:]}{_IT}{after[:NEAR]}"):
        return "the text denies it or is not sure of it"
    if after.lstrip("$*)} ").startswith("?") or _TAKEN_BACK.search(after):
        return "the text asks for it or takes it back"
    return ""


def is_cut(rest: str) -> bool:
    """Return whether the rest behind an answer is one line that stops within a sentence or a formula."""
    return len(rest.rstrip().splitlines()) <= 1 and bool(_CUT.search(rest))
