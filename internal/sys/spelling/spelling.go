// Package spelling finds the names that a mistyped word probably means.
package spelling

import (
	"slices"
	"strings"
)

// wordMax is the longest word that is compared, a namespace and a name: a longer one is no mistyped name.
const wordMax = 257

// Near returns the names that are near to a word, the nearest first: a third of its letters may be
// wrong, at least one, and two swapped neighbours count as one.
func Near(word string, names []string) []string {
	if len(word) > wordMax {
		return nil
	}
	word = strings.ToLower(word)
	most := max(1, len(word)/3)
	distances := map[string]int{}
	var near []string
	for _, name := range names {
		if max(len(name)-len(word), len(word)-len(name)) > most {
			continue // at least this many letters differ
		}
		if d := distance(word, strings.ToLower(name)); d <= most && d < max(len(word), len(name)) {
			near = append(near, name)
			distances[name] = d
		}
	}
	slices.SortStableFunc(near, func(a, b string) int { return distances[a] - distances[b] })
	return near
}

// distance counts the letters to insert, delete, replace or swap with their neighbour to
// get from a to b.
func distance(a, b string) int {
	// Three rows of the table suffice: a swap needs the row before the previous one.
	rows := [3][]int{make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		above2, above, row := rows[(i+1)%3], rows[(i+2)%3], rows[i%3]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(above[j]+1, row[j-1]+1, above[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], above2[j-2]+1)
			}
		}
	}
	return rows[len(a)%3][len(b)]
}
