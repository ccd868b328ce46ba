package output

// Held returns the memory in use by all captures.
func (c *Collector) Held() int64 { return c.memory.Load() }
