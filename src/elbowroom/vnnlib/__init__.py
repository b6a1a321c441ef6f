"""VNN-LIB: certificates as queries for other verifiers, and other people's queries read and answered."""

from elbowroom.vnnlib.answer import Answer, CaseAnswer, answer
from elbowroom.vnnlib.counterexample import Counterexample
from elbowroom.vnnlib.queries import Case, Literal, Query, Side, as_region, box_query
from elbowroom.vnnlib.read import parse_query, read_query
from elbowroom.vnnlib.show import run_verify
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
    "parse_query",
    "query",
    "read_query",
    "run_verify",
    "write_query",
]
