// Package xxl is the protocol between XXL-JOB's executors and their admin, as bytes: it
// decodes the messages and answers of executors, and encodes requests to them. It sends
// nothing itself.
//
// Executors speak one of four generations, which differ in the names of fields and paths:
//
//	A  2.2.0             a callback has executeResult
//	B  2.3.0 to 3.2.x    a callback has handleCode and handleMsg; answers are in content
//	C  3.3.0 to 3.4.x    answers are in data
//	D  3.5.0             /run is /trigger, callbacks are in an object, and a header names the group
//
// Everything is written with the names of all generations, and read with any of them.
package xxl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The headers of the protocol.
const (
	HeaderToken = "XXL-JOB-ACCESS-TOKEN"
	HeaderGroup = "XXL-JOB-APPNAME" // only in generation D
	ContentType = "application/json;charset=UTF-8"
)

// The bounds of decoding.
const (
	// MessageMax bounds the kept part of a message: executors send whole stack traces.
	MessageMax = 4 << 10
	// CallbacksMax bounds the results of one body: 200 in one occur.
	CallbacksMax = 100_000
	// fieldMax is how long the name of a group and an address may be: the columns of XXL-JOB
	// have 255 characters.
	fieldMax = 255
)

// Refusal is why a request of an executor is refused, in the executors' words.
type Refusal string

func (r Refusal) Error() string { return string(r) }

// The refusals of executors' requests.
const (
	RefusedToken    Refusal = "The access token is wrong."
	RefusedMethod   Refusal = "invalid request, HttpMethod not support."
	RefusedEmpty    Refusal = "invalid request, requestBody empty."
	RefusedArgument Refusal = "Illegal Argument."
)

// RefusedPath is the refusal of an unknown path.
func RefusedPath(path string) Refusal {
	return Refusal("invalid request, uri-mapping(" + path + ") not found.")
}

// The codes of answers and results.
const (
	CodeOK      = 200
	CodeFailed  = 500
	CodeTimeout = 502
)

// Accepted returns the answer to an accepted request. It must not be changed.
func Accepted() []byte { return accepted }

var accepted = []byte(`{"code":200,"msg":null,"content":null,"data":null}`)

// Refused returns the answer to a refused request.
func Refused(why string) []byte {
	text, _ := json.Marshal(why) // a text always encodes
	return append(append([]byte(`{"code":500,"msg":`), text...), `,"content":null,"data":null}`...)
}

// Registration is an executor's registration.
type Registration struct {
	Group   string // the appname
	Address string // the base of all calls, as sent
}

// ReadRegistration reads the body of a registration or its removal. The error is a [Refusal].
func ReadRegistration(body []byte) (Registration, error) {
	if body = trimmed(body); isBlank(body) {
		return Registration{}, RefusedEmpty
	}
	var answer struct {
		RegistryGroup, RegistryKey, RegistryValue string
	}
	if json.Unmarshal(body, &answer) != nil {
		return Registration{}, RefusedArgument
	}
	r := Registration{Group: strings.TrimSpace(answer.RegistryKey), Address: strings.TrimSpace(answer.RegistryValue)}
	if answer.RegistryGroup != "EXECUTOR" || !isField(r.Group) || !isField(r.Address) {
		return Registration{}, RefusedArgument
	}
	return r, nil
}

// isField reports whether a text can be the name of a group or an address.
func isField(text string) bool {
	return text != "" && len(text) <= fieldMax && strings.IndexFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f || r == utf8.RuneError }) < 0
}

// trimmed removes text around JSON: some libraries begin a body with a byte order mark.
func trimmed(body []byte) []byte {
	return bytes.TrimSpace(bytes.TrimPrefix(body, []byte("\uFEFF")))
}

func isBlank(body []byte) bool { return len(body) == 0 || string(body) == "null" }

// Callback is the result of a run.
type Callback struct {
	LogID   int64
	Code    int // CodeOK, CodeTimeout or another code, which is a failure
	Message string
	// raw is the original text, and inObject is set if it was in an object, as in generation D.
	raw      json.RawMessage
	inObject bool
}

// callback is a callback on the wire: generation A has Result, others have Code and Message.
type callback struct {
	LogID   number          `json:"logId"`
	Code    number          `json:"handleCode"`
	Message json.RawMessage `json:"handleMsg"`
	Result  result          `json:"executeResult"`
}

// result is the executeResult of a callback. A malformed one is empty, so that other fields stay
// readable.
type result struct {
	code    number
	message json.RawMessage
}

// UnmarshalJSON implements [json.Unmarshaler].
func (r *result) UnmarshalJSON(raw []byte) error {
	var answer struct {
		Code    number          `json:"code"`
		Message json.RawMessage `json:"msg"`
	}
	if json.Unmarshal(raw, &answer) == nil {
		*r = result{answer.Code, answer.Message}
	}
	return nil
}

// ReadCallbacks reads the body of callbacks: an array, or an object with callbackList, or one
// alone. It skips and counts unreadable callbacks. The error, a [Refusal], is for an entirely
// unreadable body.
func ReadCallbacks(body []byte) (list []Callback, unread int, err error) {
	if body = trimmed(body); isBlank(body) {
		return nil, 0, RefusedEmpty
	}
	inObject := false
	if body[0] == '{' {
		var object struct {
			List json.RawMessage `json:"callbackList"`
		}
		if json.Unmarshal(body, &object) != nil {
			return nil, 0, RefusedArgument
		}
		if object.List == nil {
			body = append(append([]byte{'['}, body...), ']')
		} else {
			body, inObject = object.List, true
		}
	}
	from := json.NewDecoder(bytes.NewReader(body))
	if start, err := from.Token(); err != nil || start != json.Delim('[') {
		return nil, 0, RefusedArgument
	}
	for from.More() {
		var raw json.RawMessage
		if len(list)+unread == CallbacksMax || from.Decode(&raw) != nil {
			return nil, 0, RefusedArgument
		}
		var c callback
		if json.Unmarshal(raw, &c) != nil || c.LogID <= 0 {
			unread++
			continue
		}
		cb := c.read()
		cb.raw, cb.inObject = raw, inObject
		list = append(list, cb)
	}
	if _, err := from.Token(); err != nil {
		return nil, 0, RefusedArgument
	}
	return list, unread, nil
}

// read decodes a callback.
func (c *callback) read() Callback {
	code, message := c.Code, text(c.Message)
	if code <= 0 {
		code = c.Result.code
	}
	if message == "" {
		message = text(c.Result.message)
	}
	return Callback{LogID: int64(c.LogID), Code: int(int32(min(max(code, 0), 1<<30))), Message: message}
}

// number is an integer, possibly written as text, with a zero fraction or with an exponent.
// Anything else is 0, so that other fields stay readable.
type number int64

// exactMax is the largest number up to which float64 represents each integer.
const exactMax = 1 << 53

// UnmarshalJSON implements [json.Unmarshaler].
func (n *number) UnmarshalJSON(raw []byte) error {
	written := strings.Trim(string(raw), `" `)
	if i, err := strconv.ParseInt(written, 10, 64); err == nil {
		*n = number(i)
	} else if f, err := strconv.ParseFloat(written, 64); err == nil && math.Abs(f) <= exactMax && f == math.Trunc(f) {
		*n = number(f)
	}
	return nil
}

// text formats a message: a text as it is, anything else in JSON, cut.
func text(raw json.RawMessage) string {
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}
	var words string
	if json.Unmarshal(raw, &words) != nil {
		words = string(raw)
	}
	return Clean(words, MessageMax)
}

// Clean makes a text of an executor storable: valid UTF-8 without NUL, which some databases refuse,
// and at most n bytes.
func Clean(text string, most int) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	if len(text) <= most {
		return text
	}
	const more = " […]"
	cut := most - len(more)
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + more
}

// Trigger requests a run from an executor.
type Trigger struct {
	JobID         int32  `json:"jobId"`
	Handler       string `json:"executorHandler"`
	Params        string `json:"executorParams"` // never null, which Node cannot read
	Block         string `json:"executorBlockStrategy"`
	Timeout       int    `json:"executorTimeout"` // in seconds; 0 for none
	LogID         int64  `json:"logId"`
	LogDateTime   int64  `json:"logDateTime"` // ms; a Log must repeat it
	GlueType      string `json:"glueType"`
	GlueSource    string `json:"glueSource"`
	GlueUpdatedAt int64  `json:"glueUpdatetime"` // ms
	Index         int    `json:"broadcastIndex"`
	Total         int    `json:"broadcastTotal"`
}

// Body returns the request.
func (t *Trigger) Body() []byte { return written(t) }

// The block strategies.
const (
	BlockSerial  = "SERIAL_EXECUTION"
	BlockDiscard = "DISCARD_LATER"
	BlockCover   = "COVER_EARLY"
)

// The paths at an executor.
const (
	PathBeat     = "/beat"
	PathIdleBeat = "/idleBeat"
	PathRun      = "/run"
	PathTrigger  = "/trigger" // PathRun in generation D
	PathKill     = "/kill"
	PathLog      = "/log"
)

// OfJob returns the request of /idleBeat and /kill.
func OfJob(id int32) []byte {
	return written(struct {
		JobID int32 `json:"jobId"`
	}{id})
}

// OfLog returns the request of /log: from a line, from 1, of a run that was sent at a moment.
func OfLog(logID, sent int64, from int) []byte {
	return written(struct {
		LogDateTim  int64 `json:"logDateTim"`
		LogDateTime int64 `json:"logDateTime"`
		LogID       int64 `json:"logId"`
		From        int   `json:"fromLineNum"`
	}{sent, sent, logID, from})
}

func written(v any) []byte {
	text, _ := json.Marshal(v) // the types above always encode
	return text
}

// Answer is what an executor answers.
type Answer struct {
	Code    int
	Message string
	content json.RawMessage
}

// OK reports whether the executor has done the request.
func (a *Answer) OK() bool { return a.Code == CodeOK }

// errAnswer is for what is no answer of an executor.
var errAnswer = errors.New("the answer is not one of an executor")

// ReadAnswer reads the answer of an executor, whatever its Content-Type says. Go executors
// refuse with an array of callbacks.
func ReadAnswer(body []byte) (Answer, error) {
	body = trimmed(body)
	if len(body) > 0 && body[0] == '[' {
		var list []callback
		if json.Unmarshal(body, &list) != nil || len(list) != 1 {
			return Answer{}, errAnswer
		}
		cb := list[0].read()
		if cb.Code == 0 {
			return Answer{}, errAnswer
		}
		return Answer{Code: cb.Code, Message: cb.Message}, nil
	}
	var answer struct {
		Code          number
		Msg           json.RawMessage
		Content, Data json.RawMessage
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.Code == 0 {
		return Answer{}, errAnswer
	}
	a := Answer{Code: int(answer.Code), Message: text(answer.Msg), content: answer.Data}
	if len(a.content) == 0 || string(a.content) == "null" {
		a.content = answer.Content
	}
	return a, nil
}

// IsOtherPath reports whether an executor has refused a path because it is of generation D.
func (a *Answer) IsOtherPath() bool {
	return !a.OK() && strings.Contains(a.Message, "uri-mapping("+PathRun+") not found")
}

// IsRefusal reports whether an executor rejected a request unread: because of its token or path.
func (a *Answer) IsRefusal() bool {
	return !a.OK() && (strings.Contains(a.Message, "access token is wrong") || strings.Contains(a.Message, "uri-mapping("))
}

// busyTexts are what executors refuse a run with by their block strategy: Java, Go and Python.
var busyTexts = []string{"block strategy effect", "There are tasks running", "The same job ["}

// IsBusy reports whether an executor has refused a run because it has another run of the job.
func (a *Answer) IsBusy() bool {
	if a.OK() {
		return false
	}
	return slices.ContainsFunc(busyTexts, func(some string) bool { return strings.Contains(a.Message, some) })
}

// Log is a part of the log of a run.
type Log struct {
	From, To int    // lines, from 1; To is before From if there are none
	Text     string // as sent
	Cut      bool   // it was longer than the read part
}

// missing are the messages of Java and Python for a missing log.
var missing = []string{"readLog fail, logFile not exists", "readLog fail, logId not found", "No such logid logs."}

// ReadLog decodes the answer to /log, with at most this many bytes of text: executors have no
// pages, and send everything. It reads the available part of a cut answer.
func ReadLog(body []byte, most int) (Log, error) {
	a, err := ReadAnswer(body)
	if err != nil {
		return readCutLog(body, most)
	}
	l, err := a.Log()
	if len(l.Text) > most {
		l.Text, l.Cut = whole(l.Text[:most]), true
	}
	return l, err
}

// Log returns the part of a log that an answer to /log has.
func (a *Answer) Log() (Log, error) {
	if !a.OK() {
		return Log{}, fmt.Errorf("the executor answered with code %d: %s", a.Code, a.Message)
	}
	var answer struct {
		FromLineNum, ToLineNum number
		LogContent             string
	}
	if len(a.content) == 0 || json.Unmarshal(a.content, &answer) != nil {
		return Log{}, errAnswer
	}
	l := Log{From: int(answer.FromLineNum), To: int(answer.ToLineNum), Text: answer.LogContent}
	if slices.Contains(missing, strings.TrimSpace(l.Text)) {
		l.Text, l.To = "", 0
	}
	return l, nil
}

var logField = regexp.MustCompile(`"logContent"\s*:\s*"`)

// readCutLog reads the text of a log from an answer whose end is missing.
func readCutLog(body []byte, most int) (Log, error) {
	at := logField.FindIndex(body)
	if at == nil {
		return Log{}, errAnswer
	}
	raw := body[at[1]:]
	end := 0 // end of complete characters and escapes
	for end < len(raw) && raw[end] != '"' {
		n := 1
		if raw[end] == '\\' {
			n = 2
			if end+1 < len(raw) && raw[end+1] == 'u' {
				n = 6
			}
		}
		if end+n > len(raw) {
			break
		}
		end += n
	}
	var l Log
	if json.Unmarshal([]byte(`"`+whole(string(raw[:end]))+`"`), &l.Text) != nil {
		return Log{}, errAnswer
	}
	if len(l.Text) > most {
		l.Text = l.Text[:most]
	}
	l.Text, l.Cut = whole(l.Text), true
	l.To = strings.Count(l.Text, "\n") + 1
	return l, nil
}

// whole returns a text without a letter at its end that is not complete.
func whole(text string) string {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if last := text[len(text)-n:]; utf8.RuneStart(last[0]) {
			if !utf8.ValidString(last) {
				return text[:len(text)-n]
			}
			break
		}
	}
	return text
}

// Callbacks re-encodes callbacks of one body for another admin: unchanged, including data
// that only that admin understands, and in the form of their generation.
func Callbacks(list []Callback) []byte {
	raw := make([]json.RawMessage, len(list))
	inObject := false
	for i := range list {
		raw[i], inObject = list[i].raw, inObject || list[i].inObject
	}
	if inObject {
		return written(map[string]any{"callbackList": raw})
	}
	return written(raw)
}

// Address returns the base of an executor's paths, without trailing slashes, so that addresses can
// be compared.
func Address(text string) string { return strings.TrimRight(text, "/") }
