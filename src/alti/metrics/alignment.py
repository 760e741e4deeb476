"""How far word alignments are from those that people made (Och and Ney 2003)."""

from collections.abc import Collection, Iterable
from math import nan
from typing import NamedTuple

Link = tuple[int, int]


class Counts(NamedTuple):
    """Links of one or many sentences, counted; counts of sentences are added up."""

    found: int  # |A|
    sure: int  # |S|
    found_sure: int  # |A ∩ S|
    found_possible: int  # |A ∩ P|, where P holds S too


def count_links(
    found: Collection[Link], sure: Collection[Link], possible: Collection[Link] = ()
) -> Counts:
    """Links of one sentence that were found, against those of people, sure and possible ones.

    >>> alti.metrics.count_links(found=[(0, 0), (1, 1)], sure=[(0, 0)])
    Counts(found=2, sure=1, found_sure=1, found_possible=1)
    """
    own, certain = {*found}, {*sure}
    return Counts(len(own), len(certain), len(own & certain), len(own & (certain | {*possible})))


def added(counts: Iterable[Counts]) -> Counts:
    """The counts of many sentences together."""
    columns = zip(*counts, strict=True)
    return Counts(*(sum(column) for column in columns))


def alignment_error_rate(counts: Counts) -> float:
    """1 − (|A ∩ S| + |A ∩ P|) / (|A| + |S|): 0 is the best; nan without any link.

    >>> counts = alti.metrics.count_links(found=[(0, 0), (1, 1)], sure=[(0, 0)])
    >>> round(alti.metrics.alignment_error_rate(counts), 3)
    0.333
    """
    every = counts.found + counts.sure
    return 1 - (counts.found_sure + counts.found_possible) / every if every else nan


def link_precision(counts: Counts) -> float:
    """The share of the found links that are possible.

    >>> counts = alti.metrics.count_links(found=[(0, 0), (1, 1)], sure=[(0, 0)])
    >>> alti.metrics.link_precision(counts)
    0.5
    """
    return counts.found_possible / counts.found if counts.found else nan


def link_recall(counts: Counts) -> float:
    """The share of the sure links that were found.

    >>> counts = alti.metrics.count_links(found=[(0, 0), (1, 1)], sure=[(0, 0)])
    >>> alti.metrics.link_recall(counts)
    1.0
    """
    return counts.found_sure / counts.sure if counts.sure else nan
