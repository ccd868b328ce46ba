package output

// Held returns the memory that all captures hold.
func (c *Collector) Held() int64 { return c.memory.Load() }
