package cache

import "testing"

func TestTheNumberOfValuesIsBounded(t *testing.T) {
	var m Map[int, string]
	for key := range 10 {
		m.Put(key, "new", 3)
	}
	if _, isKept := m.Get(9); !isKept || len(m.values) != 3 {
		t.Errorf("%d values are kept, the latest among them: %v", len(m.values), isKept)
	}
	m.Put(9, "newer", 3)
	if value, _ := m.Get(9); value != "newer" || len(m.values) != 3 {
		t.Errorf("after a change there are %d values, and it is %q", len(m.values), value)
	}
	if m.Delete(9); len(m.values) != 2 {
		t.Errorf("%d values are left", len(m.values))
	}
}
