package unreported

// SetSpoolMax bounds a spool more tightly.
func SetSpoolMax(s *Spool, bytes int64) { s.max = bytes }
