package storetest

import (
	"slices"
	"testing"
)

func TestShrinkKeepsTheNeeded(t *testing.T) {
	list := make([]int, 300)
	for i := range list {
		list[i] = i
	}
	tries := 0
	fails := func(needed ...int) func([]int) []int {
		return func(fewer []int) []int {
			tries++
			last := -1
			for _, n := range needed {
				at := slices.Index(fewer, n)
				if at < 0 {
					return nil
				}
				last = max(last, at)
			}
			return fewer[:last+1]
		}
	}
	for _, needed := range [][]int{{0}, {299}, {7, 8, 250}, {0, 1, 2, 3, 4, 5, 298}} {
		tries = 0
		if got := shrink(list, fails(needed...)); !slices.Equal(got, needed) {
			t.Errorf("needed are %v, got %v", needed, got)
		}
		if tries > 200 {
			t.Errorf("%v was found after %d tries", needed, tries)
		}
	}
}
