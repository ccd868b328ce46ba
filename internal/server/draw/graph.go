package draw

import (
	"cmp"
	"fmt"
	"html"
	"slices"
)

// Node is a box of a graph.
type Node struct {
	Layer      int    // the column, from 0
	Name, Text string // Text is a line below the name
	Class      string // ok, run, fail or todo; "" for none
	Icon       string // the address of a symbol
	IconClass  string
	Link       string
	Title      string
	Several    bool // it stands for several runs
	Selected   bool
}

// Edge connects a node to a node of a later layer.
type Edge struct {
	From, To int
	Critical bool
	Text     string
}

// The measures of a graph, in pixels.
const (
	nodeWide, nodeHigh = 168.0, 50.0
	layerStep          = 236.0
	rowGap, dummyGap   = 30.0, 18.0
	nodeLetters        = 17 // letters of a name that fit into a node
	nodeSmallLetters   = 21 // letters of the text below it
	orderRounds        = 12 // further rounds hardly save any crossings
	placeRounds        = 8
)

// spot is a place in a layer: of a node, or of an edge that passes.
type spot struct {
	node        int // -1 for a passing edge
	y           float64
	rank        int
	before      []*spot // in the previous layer
	after       []*spot
	wanted      float64
	high, apart float64
}

// layout has the layers of a graph, and the spots that each edge passes.
type layout struct {
	layers [][]*spot
	paths  [][]*spot // of the edges
	high   float64
}

// arrange places nodes in layers so that edges cross seldom and are straight: an edge over
// several layers has a spot in each, so that it passes no box.
func arrange(nodes []Node, edges []Edge) *layout {
	l := &layout{}
	of := make([]*spot, len(nodes))
	for i := range nodes {
		for len(l.layers) <= nodes[i].Layer {
			l.layers = append(l.layers, nil)
		}
		of[i] = &spot{node: i, high: nodeHigh, apart: rowGap}
		l.layers[nodes[i].Layer] = append(l.layers[nodes[i].Layer], of[i])
	}
	for _, e := range edges {
		path := []*spot{of[e.From]}
		for layer := nodes[e.From].Layer + 1; layer < nodes[e.To].Layer; layer++ {
			s := &spot{node: -1, apart: dummyGap}
			l.layers[layer] = append(l.layers[layer], s)
			path = append(path, s)
		}
		path = append(path, of[e.To])
		for i := range path[1:] {
			path[i].after = append(path[i].after, path[i+1])
			path[i+1].before = append(path[i+1].before, path[i])
		}
		l.paths = append(l.paths, path)
	}
	l.order()
	l.place()
	return l
}

// order sorts each layer by its neighbours' middle, alternating forwards and backwards, and keeps
// the order with the fewest crossings.
func (l *layout) order() {
	rank := func() {
		for _, layer := range l.layers {
			for i, s := range layer {
				s.rank = i
			}
		}
	}
	rank()
	best, fewest := l.copied(), l.crossings()
	for round := 0; round < orderRounds && fewest > 0; round++ {
		for i := range l.layers {
			layer, neighbours := l.layers[i], func(s *spot) []*spot { return s.before }
			if round%2 == 1 {
				layer, neighbours = l.layers[len(l.layers)-1-i], func(s *spot) []*spot { return s.after }
			}
			for _, s := range layer {
				if s.wanted = float64(s.rank); len(neighbours(s)) > 0 {
					s.wanted = mean(neighbours(s), func(n *spot) float64 { return float64(n.rank) })
				}
			}
			slices.SortStableFunc(layer, func(a, b *spot) int { return cmp.Compare(a.wanted, b.wanted) })
			for k, s := range layer {
				s.rank = k
			}
		}
		if n := l.crossings(); n < fewest {
			best, fewest = l.copied(), n
		}
	}
	l.layers = best
	rank()
}

func (l *layout) copied() [][]*spot {
	layers := make([][]*spot, len(l.layers))
	for i := range layers {
		layers[i] = slices.Clone(l.layers[i])
	}
	return layers
}

// crossings counts how often edges cross, between each two layers.
func (l *layout) crossings() (n int) {
	for _, layer := range l.layers {
		var ends []int // ranks in the next layer at which the edges end, from the top of this layer down
		for _, s := range layer {
			own := make([]int, len(s.after))
			for i, a := range s.after {
				own[i] = a.rank
			}
			slices.Sort(own)
			for _, end := range own {
				at, _ := slices.BinarySearch(ends, end+1)
				n += len(ends) - at
			}
			for _, end := range own {
				at, _ := slices.BinarySearch(ends, end)
				ends = slices.Insert(ends, at, end)
			}
		}
	}
	return n
}

func mean(list []*spot, of func(*spot) float64) (sum float64) {
	for _, s := range list {
		sum += of(s)
	}
	return sum / float64(len(list))
}

// place gives each spot the height of its neighbours, as far as the order permits.
func (l *layout) place() {
	for _, layer := range l.layers {
		y := 0.0
		for _, s := range layer {
			s.y = y + s.high/2
			y += s.high + s.apart
		}
	}
	for range placeRounds {
		for _, layer := range l.layers {
			for _, s := range layer {
				s.wanted = s.y
				if list := slices.Concat(s.before, s.after); len(list) > 0 {
					s.wanted = mean(list, func(n *spot) float64 { return n.y })
				}
			}
			spread(layer)
		}
	}
	top, bottom := 0.0, 0.0
	for i, layer := range l.layers {
		for k, s := range layer {
			if i == 0 && k == 0 || s.y-s.high/2 < top {
				top = s.y - s.high/2
			}
			if i == 0 && k == 0 || s.y+s.high/2 > bottom {
				bottom = s.y + s.high/2
			}
		}
	}
	for _, layer := range l.layers {
		for _, s := range layer {
			s.y -= top
		}
	}
	l.high = bottom - top
}

// spread places the spots of a layer at their preferred positions, at least their distance
// apart: overlapping ones form a block around the mean of their preferences.
func spread(layer []*spot) {
	type block struct {
		from, to   int
		sum, n, at float64
	}
	offsets := make([]float64, len(layer)) // of each spot from the first, as close as possible
	for i := 1; i < len(layer); i++ {
		above, s := layer[i-1], layer[i]
		offsets[i] = offsets[i-1] + above.high/2 + max(above.apart, s.apart) + s.high/2
	}
	var blocks []block
	for i, s := range layer {
		b := block{from: i, to: i + 1, sum: s.wanted - offsets[i], n: 1}
		b.at = b.sum
		for len(blocks) > 0 && blocks[len(blocks)-1].at > b.at {
			last := blocks[len(blocks)-1]
			blocks = blocks[:len(blocks)-1]
			b.from, b.sum, b.n = last.from, b.sum+last.sum, b.n+last.n
			b.at = b.sum / b.n
		}
		blocks = append(blocks, b)
	}
	for _, b := range blocks {
		for i := b.from; i < b.to; i++ {
			layer[i].y = b.at + offsets[i]
		}
	}
}

// Graph draws nodes in layers from left to right, with edges. It has its natural size: a large one
// scrolls.
func Graph(label string, nodes []Node, edges []Edge) string {
	l := arrange(nodes, edges)
	wide := layerStep*float64(max(len(l.layers)-1, 0)) + nodeWide
	s := &svg{}
	fmt.Fprintf(s, `<svg class="graph" width="%s" height="%s" viewBox="-2 -2 %s %s" role="group" aria-label="%s">`,
		n(wide+4), n(l.high+4), n(wide+4), n(l.high+4), html.EscapeString(label))
	for i := range edges {
		s.edge(&edges[i], l.paths[i], nodes)
	}
	for layer, spots := range l.layers {
		for _, at := range spots {
			if at.node >= 0 {
				s.node(&nodes[at.node], float64(layer)*layerStep, at.y-nodeHigh/2)
			}
		}
	}
	return s.close()
}

// edge draws a curve over the spots that an edge passes, with an arrow at its end.
func (s *svg) edge(e *Edge, path []*spot, nodes []Node) {
	class := "g-edge"
	if e.Critical {
		class = "g-edge crit"
	}
	x := float64(nodes[e.From].Layer)*layerStep + nodeWide
	d := fmt.Sprintf("M%s %s", n(x), n(path[0].y))
	for i, to := range path[1:] {
		end := x + layerStep - nodeWide
		last := i == len(path)-2
		if last {
			end -= 6
		}
		bend := (layerStep - nodeWide) / 2
		d += fmt.Sprintf("C%s %s %s %s %s %s", n(x+bend), n(path[i].y), n(end-bend), n(to.y), n(end), n(to.y))
		if !last {
			d += fmt.Sprintf("H%s", n(end+nodeWide))
		}
		x = end + nodeWide
	}
	x -= nodeWide // the end of the arrow
	y := path[len(path)-1].y
	d += fmt.Sprintf("M%s %sl5 4-5 4", n(x), n(y-4))
	fmt.Fprintf(s, `<path d="%s" class="%s">`, d, class)
	if e.Text != "" {
		fmt.Fprintf(s, "<title>%s</title>", html.EscapeString(e.Text))
	}
	s.WriteString("</path>")
}

func (s *svg) node(node *Node, x, y float64) {
	class := "g-node"
	if node.Class != "" {
		class += " " + node.Class
	}
	if node.Selected {
		class += " on"
	}
	end := s.link(node.Link, node.Name+": "+node.Title)
	fmt.Fprintf(s, `<g class="%s" transform="translate(%s %s)">`, class, n(x), n(y))
	if node.Several {
		s.rect(4, 4, nodeWide, nodeHigh, 8, "more", "")
	}
	s.rect(0, 0, nodeWide, nodeHigh, 8, "box", node.Name+": "+node.Title)
	fmt.Fprintf(s, `<svg x="12" y="17" width="16" height="16" class="i st %s" aria-hidden="true"><use href="%s"/></svg>`, html.EscapeString(node.IconClass), html.EscapeString(node.Icon))
	s.text(38, 22, "", "", cut(node.Name, nodeLetters))
	s.text(38, 38, "s", "", cut(node.Text, nodeSmallLetters))
	s.WriteString("</g>")
	end()
}

// cut shortens a text to the width of n Latin letters; other letters are twice as wide.
func cut(text string, letters int) string {
	used := 0
	for i, r := range text {
		wide := 1
		if r >= 0x2E80 {
			wide = 2
		}
		if used += wide; used > letters {
			return text[:i] + "…"
		}
	}
	return text
}

// Dot is a node of a sketch.
type Dot struct {
	Layer int
	Class Class
}

// Sketch draws a small graph for a row of a table: a dot for each node.
func Sketch(label string, dots []Dot, edges []Edge) string {
	nodes := make([]Node, len(dots))
	for i := range dots {
		nodes[i].Layer = dots[i].Layer
	}
	l := arrange(nodes, edges)
	const w, h, edge = 118.0, 30.0, 5.0
	across := (w - 2*edge) / float64(max(len(l.layers)-1, 3))
	down := min(18/(nodeHigh+rowGap), (h-2*edge)/max(l.high-nodeHigh, 1))
	s := open("sketch", label, 0, w, h)
	type point struct{ x, y float64 }
	at := make([]point, len(dots))
	middle := l.high / 2
	for layer, spots := range l.layers {
		for _, spot := range spots {
			if spot.node >= 0 {
				at[spot.node] = point{edge + float64(layer)*across, h/2 + (spot.y-middle)*down}
			}
		}
	}
	for _, e := range edges {
		s.line(at[e.From].x, at[e.From].y, at[e.To].x, at[e.To].y, "g-edge")
	}
	size := min(3.6, across/2-1)
	for i := range dots {
		fmt.Fprintf(s, `<circle cx="%s" cy="%s" r="%s" class="%s"/>`, n(at[i].x), n(at[i].y), n(max(size, 1)), dots[i].Class)
	}
	return s.close()
}
