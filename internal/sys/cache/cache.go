// Package cache has a bounded map for values that can be read again. It has no expiry.
package cache

import "sync"

// Map keeps values by key. The zero value is ready for use, by several goroutines.
type Map[K comparable, V any] struct {
	mu     sync.Mutex
	values map[K]V
}

// Get returns the value of a key, and whether there is one.
func (m *Map[K, V]) Get(key K) (V, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	value, ok := m.values[key]
	return value, ok
}

// Put stores a value. For a new key it drops arbitrary others until at most most values are left.
func (m *Map[K, V]) Put(key K, value V, most int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.values == nil {
		m.values = map[K]V{}
	}
	if _, replaces := m.values[key]; !replaces {
		for other := range m.values {
			if len(m.values) < most {
				break
			}
			delete(m.values, other)
		}
	}
	m.values[key] = value
}

// Delete drops the value of a key.
func (m *Map[K, V]) Delete(key K) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.values, key)
}
