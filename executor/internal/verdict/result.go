package verdict

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/belfry-cron/belfry/job"
)

// ResultVariable names the file into which a step of a flow writes its result.
const ResultVariable = "BELFRY_RESULT"

// ParseResult decodes the result of a command: a JSON object, or lines name=value, whose values are
// texts. It returns JSON, or nil for no result.
func ParseResult(text []byte) (json.RawMessage, error) {
	if len(text) > job.ResultMax {
		return nil, fmt.Errorf("%s has more than %d bytes", ResultVariable, job.ResultMax)
	}
	text = bytes.TrimSpace(text)
	if len(text) == 0 {
		return nil, nil
	}
	if text[0] == '{' {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(text, &object); err != nil {
			return nil, fmt.Errorf("%s begins with { and is not a JSON object: %w", ResultVariable, err)
		}
		return text, nil
	}
	values := map[string]string{}
	for i, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSuffix(line, "\r")
		if strings.TrimSpace(line) == "" {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return nil, fmt.Errorf("%s: line %d is not name=value; write lines like rows=12, or a JSON object", ResultVariable, i+1)
		}
		values[name] = value
	}
	return json.Marshal(values)
}
