package draw

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// layeredGraph is a random graph of n nodes.
func layeredGraph(seed uint64, count int) (nodes []Node, edges []Edge) {
	chance := rand.New(rand.NewPCG(seed, 1))
	for i := range count {
		node := Node{Name: fmt.Sprint(i)}
		for range chance.IntN(3) {
			if i == 0 {
				break
			}
			from := chance.IntN(i)
			edges = append(edges, Edge{From: from, To: i})
			node.Layer = max(node.Layer, nodes[from].Layer+1)
		}
		nodes = append(nodes, node)
	}
	return nodes, edges
}

// No box covers another, and no edge crosses a foreign box.
func TestNothingInAGraphOverlaps(t *testing.T) {
	for seed := range uint64(60) {
		nodes, edges := layeredGraph(seed, 2+int(seed)*3)
		l := arrange(nodes, edges)
		for number, layer := range l.layers {
			for i, s := range layer {
				if s.y-s.high/2 < -0.01 || s.y+s.high/2 > l.high+0.01 {
					t.Fatalf("seed %d: a spot of layer %d is outside of the picture", seed, number)
				}
				if i == 0 {
					continue
				}
				if above := layer[i-1]; s.y-s.high/2-(above.y+above.high/2) < dummyGap-0.01 {
					t.Fatalf("seed %d: in layer %d spot %d is %.1f below the one above it", seed, number, i, s.y-above.y)
				}
			}
		}
		for i, path := range l.paths {
			if len(path) != nodes[edges[i].To].Layer-nodes[edges[i].From].Layer+1 {
				t.Fatalf("seed %d: edge %d has %d spots", seed, i, len(path))
			}
		}
	}
}

// Two chains that are named crosswise are drawn without a crossing, and a chain is straight.
func TestEdgesCrossSeldomAndAreStraight(t *testing.T) {
	nodes := []Node{{Name: "a"}, {Name: "b"}, {Name: "b2", Layer: 1}, {Name: "a2", Layer: 1}, {Name: "b3", Layer: 2}, {Name: "a3", Layer: 2}}
	edges := []Edge{{From: 0, To: 3}, {From: 1, To: 2}, {From: 3, To: 5}, {From: 2, To: 4}}
	l := arrange(nodes, edges)
	if n := l.crossings(); n != 0 {
		t.Errorf("%d edges cross", n)
	}
	for i, path := range l.paths {
		if path[0].y != path[1].y {
			t.Errorf("edge %d leads from %.1f to %.1f", i, path[0].y, path[1].y)
		}
	}
	diamond := arrange([]Node{{}, {Layer: 1}, {Layer: 1}, {Layer: 2}}, []Edge{{From: 0, To: 1}, {From: 0, To: 2}, {From: 1, To: 3}, {From: 2, To: 3}})
	if a, b := diamond.layers[0][0].y, diamond.layers[2][0].y; a != b || a != diamond.high/2 {
		t.Errorf("the ends of a diamond are at %.1f and %.1f of %.1f", a, b, diamond.high)
	}
}

func TestAGraphOfManyNodesIsArrangedQuickly(t *testing.T) {
	nodes, edges := layeredGraph(7, 550)
	if text := Graph("g", nodes, edges); len(text) > 1<<20 {
		t.Errorf("the picture has %d bytes", len(text))
	}
}

func TestLongNamesAreCutByTheirWidth(t *testing.T) {
	for text, want := range map[string]string{"abc": "abc", "abcdef": "abcd…", "任务名": "任务…"} {
		if got := cut(text, 4); got != want {
			t.Errorf("%q is cut to %q, want %q", text, got, want)
		}
	}
}
