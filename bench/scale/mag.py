"""The shape of MAG240M: papers with 768 float16 columns, authors and institutions without, three relations and their reverses."""

from __future__ import annotations

from shape import Edges, Relation, Shape

PAPERS, AUTHORS, INSTITUTIONS = 121_751_666, 122_383_112, 25_721
CITES, WRITES, AFFILIATED = 1_297_748_926, 386_022_720, 44_592_586


class Mag(Shape):
    """A paper cites some papers and has some authors, and an author has few institutions; their other ends are skewed.

    Input nodes are as many papers as the train split has. Numbers of edges are left out, as models of this graph use
    none, and batches have rows as they are stored: widened, a batch of 1,024 input nodes would have twice the bytes.
    """

    fanouts, input_whole, columns_whole = [25, 15], 1_112_392, 768
    options, edge_ids = {"feature_dtype": "stored", "return_edge_id": False}, False

    def __init__(self, fraction: float, columns: int = columns_whole) -> None:
        papers, authors = int(PAPERS * fraction), int(AUTHORS * fraction)
        institutions = max(1, int(INSTITUTIONS * fraction))
        cites = Edges("cites", papers, papers, int(CITES * fraction), both_ways=True)
        writes = Edges("writes", authors, papers, int(WRITES * fraction), both_ways=True)
        affiliated = Edges("affiliated_with", institutions, authors, int(AFFILIATED * fraction), both_ways=True)
        super().__init__(
            f"mag-{fraction:g}-{columns}",
            columns,
            {"paper": papers, "author": authors, "institution": institutions},
            "paper",
            {
                ("paper", "cites", "paper"): Relation(cites, reverse=True),
                ("paper", "rev_cites", "paper"): Relation(cites),
                ("author", "writes", "paper"): Relation(writes),
                ("paper", "rev_writes", "author"): Relation(writes, reverse=True),
                ("author", "affiliated_with", "institution"): Relation(affiliated, reverse=True),
                ("institution", "rev_affiliated_with", "author"): Relation(affiliated),
            },
        )
