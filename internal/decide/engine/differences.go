package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const (
	// changesMax is the most fields in a record: more than a person changes at once.
	changesMax = 50
	// changeMax is the most bytes of a value in a record: enough for a command line, not
	// for a script.
	changeMax = 256
)

// hidden replaces likely secrets.
const hidden = "(hidden)"

// Differences returns the changes from an old document to a new one, without the server's
// additions.
func Differences(old, given any) []store.Change {
	// Both were read from JSON.
	before, _ := json.Marshal(old)
	after, _ := json.Marshal(given)
	return differences(treeOf(before), treeOf(after))
}

// differences compares two documents as JSON is read.
func differences(before, after any) []store.Change {
	var changes []store.Change
	compareTrees("", before, after, &changes)
	if more := len(changes) - changesMax; more > 0 {
		changes = append(changes[:changesMax], store.Change{Path: "…", After: fmt.Sprintf("%d more", more)})
	}
	return changes
}

// treeOf reads JSON, with numbers as they are written.
func treeOf(text []byte) (tree any) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	_ = decoder.Decode(&tree) // it was encoded as JSON
	return tree
}

// compareTrees adds differences by path. Lists are compared as a whole: a move within one
// is not a change of every later item.
func compareTrees(path string, before, after any, changes *[]store.Change) {
	was, wasMap := before.(map[string]any)
	is, isMap := after.(map[string]any)
	if (wasMap || before == nil) && (isMap || after == nil) && (wasMap || isMap) {
		keys := slices.AppendSeq(make([]string, 0, len(was)+len(is)), maps.Keys(was))
		keys = slices.AppendSeq(keys, maps.Keys(is))
		slices.Sort(keys)
		for _, key := range slices.Compact(keys) {
			inner := key
			if path != "" {
				inner = path + "." + key
			} else if key == "uid" || key == "version" || key == "status" {
				continue
			}
			compareTrees(inner, was[key], is[key], changes)
		}
		return
	}
	old, now := valueText(before), valueText(after)
	if old != now {
		*changes = append(*changes, store.Change{Path: path, Before: shownValue(path, old), After: shownValue(path, now)})
	}
}

// valueText formats a value: texts verbatim, others in JSON.
func valueText(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(v) // it was decoded from JSON
	return strings.TrimSpace(b.String())
}

// shownValue hides likely secrets, and cuts long values.
func shownValue(path, value string) string {
	if value == "" {
		return ""
	}
	switch job.SecrecyOf(path) {
	case job.SecretValue:
		return hidden
	case job.SecretAddress:
		value = addressText(value)
	case job.SecretNothing:
	}
	if len(value) <= changeMax {
		return value
	}
	cut := changeMax
	for !utf8.RuneStart(value[cut]) {
		cut--
	}
	return value[:cut] + fmt.Sprintf("… (%d bytes)", len(value))
}

// addressText hides the user and the query of an address, which may be a template
// that no parser of addresses reads.
func addressText(address string) string {
	scheme, rest, found := strings.Cut(address, "://")
	if !found {
		return hidden
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	host, place := rest[:end], rest[end:]
	if at := strings.LastIndexByte(host, '@'); at >= 0 {
		host = hidden + host[at:]
	}
	if at := strings.IndexByte(place, '?'); at >= 0 {
		place = place[:at+1] + hidden
	}
	return scheme + "://" + host + place
}
