"""Maximum flow and minimum cut (Ford and Fulkerson 1956; here Dinic 1970)."""

from __future__ import annotations

from collections import deque


class Flow:
    """Maximum flow on integer vertices (Dinic), without recursion."""

    def __init__(self) -> None:
        self.head: list[list[int]] = []
        self.to: list[int] = []
        self.room: list[int] = []

    def vertex(self) -> int:
        self.head.append([])
        return len(self.head) - 1

    def edge(self, a: int, b: int, capacity: int) -> None:
        for x, y, room in ((a, b, capacity), (b, a, 0)):
            self.head[x].append(len(self.to))
            self.to.append(y)
            self.room.append(room)

    def _levels(self, source: int) -> list[int]:
        level = [-1] * len(self.head)
        level[source] = 0
        queue = deque([source])
        while queue:
            a = queue.popleft()
            for e in self.head[a]:
                if self.room[e] > 0 and level[self.to[e]] < 0:
                    level[self.to[e]] = level[a] + 1
                    queue.append(self.to[e])
        return level

    def _push(self, source: int, sink: int, level: list[int], at: list[int]) -> int:
        path: list[int] = []
        a = source
        while a != sink:
            edges = self.head[a]
            while at[a] < len(edges):
                e = edges[at[a]]
                if self.room[e] > 0 and level[self.to[e]] == level[a] + 1:
                    break
                at[a] += 1
            else:
                if not path:
                    return 0
                level[a] = -1
                a = self.to[path.pop() ^ 1]
                continue
            path.append(e)
            a = self.to[e]
        pushed = min(self.room[e] for e in path)
        for e in path:
            self.room[e] -= pushed
            self.room[e ^ 1] += pushed
        return pushed

    def cut(self, source: int, sink: int) -> list[bool]:
        """Whether each vertex lies on the source's side of a minimum cut: of several, the one next
        to the sink."""
        while True:
            level = self._levels(source)
            if level[sink] < 0:
                break
            at = [0] * len(self.head)
            while self._push(source, sink, level, at):
                pass
        near = [True] * len(self.head)
        near[sink] = False
        queue = deque([sink])
        while queue:
            for e in self.head[queue.popleft()]:
                a = self.to[e]
                if near[a] and self.room[e ^ 1] > 0:
                    near[a] = False
                    queue.append(a)
        return near
