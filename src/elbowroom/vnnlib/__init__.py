"""VNN-LIB: certificates as queries for other verifiers, and other people's queries read and answered."""

from elbowroom.claim.query import Case, Literal, Query, Side, as_region, box_query
from elbowroom.verify.answer import Answer, CaseAnswer, answer
from elbowroom.verify.counterexample import Counterexample
from elbowroom.verify.question import load_for
from elbowroom.vnnlib.read import parse_query, read_query
from elbowroom.vnnlib.write import decimals_between, exact_decimals, export, query, write_query

__all__ = [
    "Answer",
    "Case",
    "CaseAnswer",
    "Counterexample",
    "Literal",
    "Query",
    "Side",
    "answer",
    "as_region",
    "box_query",
    "decimals_between",
    "exact_decimals",
    "export",
    "load_for",
    "parse_query",
    "query",
    "read_query",
    "write_query",
]
