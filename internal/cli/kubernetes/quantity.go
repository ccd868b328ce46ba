package kubernetes

import (
	"math"
	"strconv"
	"strings"

	"github.com/belfry-cron/belfry/job"
)

// units are the suffixes of a quantity of Kubernetes.
var units = map[string]float64{
	"": 1, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40,
}

// quantity parses a quantity, such as 500m or 128Mi.
func quantity(text string) (float64, bool) {
	number := strings.TrimRight(text, "mkMGTKi")
	unit, known := units[text[len(number):]]
	n, err := strconv.ParseFloat(number, 64)
	if !known || err != nil || n < 0 || math.IsInf(n, 0) || math.IsNaN(n) {
		return 0, false
	}
	return n * unit, true
}

func memory(text string) (job.Size, bool) {
	n, ok := quantity(text)
	return job.Size(n), ok && n < math.MaxInt64
}

func processors(text string) (float64, bool) { return quantity(text) }
