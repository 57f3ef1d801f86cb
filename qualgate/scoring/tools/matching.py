"""Maximum bipartite matching: can every row be given a column of its own?"""

from __future__ import annotations


def perfect(edges: list[int]) -> bool:
    """Whether all n rows can be given different columns out of n. `edges[row]` has bit c set where column c suits.

    Augmenting paths, breadth first, over bit sets: 500 rows take some hundredths of a second whatever the edges.
    """
    row_of: dict[int, int] = {}  # by column
    column_of: dict[int, int] = {}
    for start in range(len(edges)):
        unseen, came_from, queue = (1 << len(edges)) - 1, {}, [start]
        end = None
        for row in queue:  # grows
            fresh = edges[row] & unseen
            unseen &= ~fresh
            while fresh and end is None:
                column = (fresh & -fresh).bit_length() - 1
                fresh &= fresh - 1
                came_from[column] = row
                if column in row_of:
                    queue.append(row_of[column])
                else:
                    end = column
            if end is not None:
                break
        if end is None:
            return False
        while end is not None:  # every row on the way moves to the column it was reached by
            row = came_from[end]
            row_of[end], column_of[row], end = row, end, column_of.get(row)
    return True
