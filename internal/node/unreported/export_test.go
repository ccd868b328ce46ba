package unreported

// SetSpoolMax bounds a spool more tightly.
func SetSpoolMax(s *Spool, bytes int64) { s.max = bytes }

// NewFile makes the next result begin a file, as one does after fileMax.
func NewFile(s *Spool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leave()
}
