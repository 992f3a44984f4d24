"""The words ToolWorld is made of: business domains, entities, attributes, values, verbs, fillers.

Instructions and APIs draw on the same lists, so that what is learned of a word in one environment helps
in another; `jargon` invents words that belong to one environment alone. A word is known to the policy by
`word_id`, a stable number.
"""

from __future__ import annotations

import numpy as np

from envsched_core.keyed import name_hash

__all__ = [
    "API_VERBS",
    "ASK_VERBS",
    "ATTRIBUTES",
    "DOMAINS",
    "FILLERS",
    "NAMES",
    "SYNONYM",
    "VALUES_EACH",
    "jargon",
    "say",
    "word_id",
]

Words = tuple[str, ...]

DOMAINS: dict[str, dict[Words, Words]] = {
    "retail": {
        ("order", "purchase"): ("status", "priority", "method", "region"),
        ("product", "item"): ("color", "size", "category", "stock"),
        ("customer", "shopper"): ("tier", "language", "region", "status"),
        ("voucher", "coupon"): ("status", "tier", "category", "period"),
    },
    "banking": {
        ("account", "deposit"): ("status", "tier", "currency", "period"),
        ("card", "plastic"): ("status", "level", "currency", "color"),
        ("client", "holder"): ("tier", "language", "region", "risk"),
        ("loan", "credit"): ("status", "period", "risk", "currency"),
    },
    "clinic": {
        ("patient", "case"): ("risk", "language", "status", "level"),
        ("visit", "appointment"): ("status", "day", "method", "priority"),
        ("doctor", "physician"): ("shift", "language", "level", "day"),
        ("ward", "unit"): ("size", "level", "shift", "category"),
    },
    "logistics": {
        ("parcel", "shipment"): ("size", "status", "priority", "region"),
        ("truck", "vehicle"): ("size", "shift", "status", "color"),
        ("driver", "courier"): ("shift", "region", "language", "level"),
        ("depot", "warehouse"): ("region", "stock", "size", "status"),
    },
    "hotel": {
        ("booking", "reservation"): ("status", "day", "period", "method"),
        ("room", "suite"): ("size", "level", "status", "category"),
        ("guest", "visitor"): ("tier", "language", "status", "region"),
        ("event", "function"): ("day", "size", "category", "priority"),
    },
    "school": {
        ("course", "class"): ("level", "day", "category", "language"),
        ("student", "pupil"): ("level", "status", "language", "tier"),
        ("teacher", "tutor"): ("shift", "language", "category", "level"),
        ("exam", "test"): ("day", "status", "level", "method"),
    },
    "helpdesk": {
        ("ticket", "incident"): ("priority", "status", "category", "method"),
        ("agent", "operator"): ("shift", "language", "level", "region"),
        ("device", "machine"): ("status", "category", "color", "risk"),
        ("queue", "line"): ("priority", "size", "shift", "language"),
    },
    "property": {
        ("flat", "apartment"): ("size", "status", "region", "level"),
        ("lease", "contract"): ("period", "status", "currency", "risk"),
        ("tenant", "renter"): ("tier", "risk", "language", "status"),
        ("repair", "job"): ("priority", "day", "status", "category"),
    },
    "factory": {
        ("part", "component"): ("stock", "size", "color", "category"),
        ("machine", "press"): ("status", "shift", "risk", "level"),
        ("worker", "technician"): ("shift", "level", "language", "region"),
        ("batch", "lot"): ("status", "priority", "size", "day"),
    },
    "media": {
        ("article", "story"): ("status", "category", "language", "priority"),
        ("author", "writer"): ("tier", "language", "region", "level"),
        ("issue", "edition"): ("day", "status", "size", "period"),
        ("campaign", "promotion"): ("status", "region", "period", "method"),
    },
}
"""Domain -> entity (its two words) -> attributes it may have."""

ATTRIBUTES: dict[str, tuple[Words, tuple[Words, ...]]] = {
    "status": (("status", "state"), (("open", "active"), ("closed", "finished"), ("paused", "held"), ("void", "dead"))),
    "priority": (
        ("priority", "urgency"),
        (("low", "minor"), ("normal", "usual"), ("high", "urgent"), ("top", "vital")),
    ),
    "method": (("method", "channel"), (("email", "mail"), ("phone", "call"), ("web", "online"), ("desk", "counter"))),
    "region": (("region", "area"), (("north", "upper"), ("south", "lower"), ("east", "right"), ("west", "left"))),
    "color": (("color", "shade"), (("red", "crimson"), ("blue", "navy"), ("green", "olive"), ("grey", "ash"))),
    "size": (("size", "format"), (("small", "little"), ("medium", "middle"), ("large", "big"), ("giant", "huge"))),
    "category": (
        ("category", "kind"),
        (("basic", "plain"), ("premium", "fine"), ("custom", "bespoke"), ("trial", "pilot")),
    ),
    "stock": (("stock", "supply"), (("none", "nil"), ("few", "scarce"), ("some", "fair"), ("plenty", "ample"))),
    "tier": (("tier", "rank"), (("bronze", "third"), ("silver", "second"), ("gold", "first"), ("platinum", "supreme"))),
    "language": (("language", "tongue"), (("english", "en"), ("french", "fr"), ("german", "de"), ("spanish", "es"))),
    "period": (("period", "term"), (("daily", "day"), ("weekly", "week"), ("monthly", "month"), ("yearly", "year"))),
    "currency": (("currency", "money"), (("dollar", "usd"), ("euro", "eur"), ("pound", "gbp"), ("yen", "jpy"))),
    "risk": (
        ("risk", "exposure"),
        (("safe", "secure"), ("mild", "slight"), ("serious", "grave"), ("severe", "critical")),
    ),
    "level": (
        ("level", "grade"),
        (("entry", "starter"), ("junior", "lesser"), ("senior", "greater"), ("expert", "master")),
    ),
    "shift": (("shift", "slot"), (("early", "morning"), ("day", "noon"), ("late", "evening"), ("night", "midnight"))),
    "day": (("day", "date"), (("monday", "mon"), ("tuesday", "tue"), ("thursday", "thu"), ("friday", "fri"))),
}
"""Attribute -> its two words and its four values, each with two words; the first is the API's."""

VALUES_EACH = 4
SYNONYM = 0.1
"""Chance that a user or an API says the second word of an entity, attribute or value."""

ASK_VERBS: dict[str, Words] = {
    "create": ("create", "add", "register"),
    "update": ("update", "change", "correct"),
    "delete": ("delete", "remove", "cancel"),
    "assign": ("assign", "give", "route"),
}
"""What a user says."""

API_VERBS: dict[str, Words] = {
    "find": ("find", "search", "locate"),
    "get": ("get", "read", "show"),
    "create": ("create", "add", "insert"),
    "update": ("update", "set", "change"),
    "delete": ("delete", "remove", "drop"),
    "assign": ("assign", "route", "transfer"),
    "help": ("help", "docs"),
    "login": ("login", "authenticate"),
    "unlock": ("unlock", "release"),
    "confirm": ("confirm", "commit"),
}
"""What an API calls its operations; each API has one verb for each."""

FILLERS = (
    "please",
    "now",
    "i need you to",
    "could you",
    "as agreed",
    "for the team",
    "next",
    "kindly",
    "we should",
    "",
)

NAMES = tuple(
    "Alder Birch Cedar Dune Ember Fjord Grove Heron Iris Juniper Kestrel Lark Maple Nettle Otter Pine Quartz Raven"
    " Sage Thistle Umber Vale Willow Yarrow Zephyr Aspen Brook Clover Dale Elm Fern Gale Hazel Ivy Jade Kelp".split()
)
"""Names of objects."""

_ONSETS = tuple("b br d dr f fl g gr k kl m n p pl r s sk t tr v vr z".split())
_VOWELS = tuple("a e i o u ai ou".split())


def word_id(word: str) -> int:
    """A stable number in [1, 2^31) by which the policy knows a word."""
    return (name_hash(word) >> 34) + 1


def say(rng: np.random.Generator, words: Words) -> str:
    """One word for something that has two."""
    return words[int(rng.random() < SYNONYM)]


def jargon(rng: np.random.Generator) -> str:
    """An invented word of three syllables."""
    draw = rng.integers(1 << 30, size=6)
    syllables = (_ONSETS[draw[2 * i] % len(_ONSETS)] + _VOWELS[draw[2 * i + 1] % len(_VOWELS)] for i in range(3))
    return "".join(syllables) + "x"
