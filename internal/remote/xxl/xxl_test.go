package xxl

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestCallbacksOfEachGenerationSayTheSame(t *testing.T) {
	want := []Callback{{LogID: 1001, Code: 200, Message: "ok"}}
	for name, body := range map[string]string{
		"A":                     `[{"logId":1001,"logDateTim":17,"executeResult":{"code":200,"msg":"ok"}}]`,
		"B and C":               `[{"logId":1001,"logDateTim":17,"handleCode":200,"handleMsg":"ok"}]`,
		"D":                     `{"callbackList":[{"logId":1001,"logDateTime":17,"handleCode":200,"handleMsg":"ok"}]}`,
		"Go and Python, both":   `[{"logId": 1001, "logDateTim": 9, "handleCode": 200, "handleMsg": "ok", "executeResult": {"code": 200, "msg": "ok"}}]`,
		"handleCode weighs":     `[{"logId":1001,"handleCode":200,"handleMsg":"ok","executeResult":{"code":500,"msg":"no"}}]`,
		"handleCode of zero":    `[{"logId":1001,"handleCode":0,"executeResult":{"code":200,"msg":"ok"}}]`,
		"one alone":             `{"logId":1001,"handleCode":200,"handleMsg":"ok"}`,
		"numbers in quotes":     `[{"logId":"1001","handleCode":"200","handleMsg":"ok"}]`,
		"unknown fields":        `[{"logId":1001,"handleCode":200,"handleMsg":"ok","later":{"a":[1]}}]`,
		"nulls and whitespace":  "\n [ {\"logId\":1001,\"handleCode\":200,\"handleMsg\":\"ok\",\"executeResult\":null} ]\n",
		"a fraction of nothing": `[{"logId":1001,"handleCode":200.0,"handleMsg":"ok"}]`,
		"an exponent":           `[{"logId":1.001e3,"handleCode":2E2,"handleMsg":"ok"}]`,
		"other letters":         `[{"LogID":1001,"HandleCode":200,"HANDLEMSG":"ok"}]`,
		"a byte order mark":     "\uFEFF" + `[{"logId":1001,"handleCode":200,"handleMsg":"ok"}]`,
		"a result as text":      `[{"logId":1001,"handleCode":200,"handleMsg":"ok","executeResult":"ok"}]`,
		"a result as a list":    `[{"logId":1001,"handleCode":200,"handleMsg":"ok","executeResult":[]}]`,
	} {
		got, unread, err := ReadCallbacks([]byte(body))
		if err != nil || unread != 0 || !reflect.DeepEqual(said(got), want) {
			t.Errorf("%s: got %+v, %d unread, %v", name, got, unread, err)
		}
	}
}

func TestNumbersOfRuns(t *testing.T) {
	for written, want := range map[string]int64{
		"9007199254740993": 9007199254740993, `"3000000001"`: 3000000001, "3000000001.0": 3000000001, "3.000000001e9": 3000000001, "1.5": 0, "1e300": 0, "-1": 0, `""`: 0,
	} {
		list, unread, err := ReadCallbacks([]byte(`[{"logId":` + written + `,"handleCode":200}]`))
		if want == 0 {
			if err != nil || len(list) != 0 || unread != 1 {
				t.Errorf("%s was read as %+v, %v", written, list, err)
			}
			continue
		}
		if err != nil || len(list) != 1 || list[0].LogID != want {
			t.Errorf("%s was read as %+v, %v", written, list, err)
		}
	}
}

func TestCallbackMessages(t *testing.T) {
	for name, c := range map[string]struct{ field, want string }{
		"absent":        {``, ""},
		"null":          {`,"handleMsg":null`, ""},
		"an object":     {`,"handleMsg":{"rows":3}`, `{"rows":3}`},
		"a number":      {`,"handleMsg":42`, `42`},
		"NUL":           {`,"handleMsg":"a\u0000b"`, "a\uFFFDb"},
		"half a letter": {",\"handleMsg\":\"a\xffb\"", "a\uFFFDb"},
	} {
		got, _, err := ReadCallbacks([]byte(`[{"logId":1,"handleCode":500` + c.field + `}]`))
		if err != nil || len(got) != 1 || got[0].Message != c.want {
			t.Errorf("%s: got %+v, %v, want message %q", name, got, err, c.want)
		}
	}
	long, _, err := ReadCallbacks([]byte(`[{"logId":1,"handleCode":500,"handleMsg":"` + strings.Repeat("栈", 50_000) + `"}]`))
	if err != nil || len(long[0].Message) > MessageMax || !utf8.ValidString(long[0].Message) || !strings.HasSuffix(long[0].Message, "[…]") {
		t.Errorf("a long message became %d bytes, %v", len(long[0].Message), err)
	}
}

func TestOneUnreadableCallbackCostsNoOther(t *testing.T) {
	got, unread, err := ReadCallbacks([]byte(`[{"logId":1,"handleCode":200},7,{"logId":"x","handleCode":200},{"handleCode":200},{"logId":2,"handleCode":"?"}]`))
	if err != nil || unread != 3 || len(got) != 2 || got[1].LogID != 2 || got[1].Code != 0 {
		t.Errorf("got %+v, %d unread, %v", got, unread, err)
	}
}

func TestBodiesThatAreRefused(t *testing.T) {
	for body, want := range map[string]Refusal{
		"": RefusedEmpty, " \n": RefusedEmpty, "null": RefusedEmpty,
		"[": RefusedArgument, "7": RefusedArgument, `{"callbackList":7}`: RefusedArgument, `[{"logId":1}`: RefusedArgument, `[1 2]`: RefusedArgument,
	} {
		if _, _, err := ReadCallbacks([]byte(body)); !errors.Is(err, want) {
			t.Errorf("callbacks %q: %v, want %v", body, err, want)
		}
	}
	if _, _, err := ReadCallbacks([]byte("[" + strings.Repeat("1,", CallbacksMax) + "1]")); !errors.Is(err, RefusedArgument) {
		t.Errorf("more callbacks than there may be: %v", err)
	}
}

func TestRegistrations(t *testing.T) {
	for body, want := range map[string]Registration{
		`{"registryGroup":"EXECUTOR","registryKey":"order-service","registryValue":"http://10.0.0.5:9999/"}`:     {"order-service", "http://10.0.0.5:9999/"},
		`{"registryGroup": "EXECUTOR", "registryKey": "py", "registryValue": "http://10.0.0.5:9999", "x": null}`: {"py", "http://10.0.0.5:9999"},
	} {
		if got, err := ReadRegistration([]byte(body)); err != nil || got != want {
			t.Errorf("%s: %+v, %v", body, got, err)
		}
	}
	for body, want := range map[string]Refusal{
		``:   RefusedEmpty,
		`{}`: RefusedArgument,
		`{"registryGroup":"ADMIN","registryKey":"a","registryValue":"http://h"}`:                                                  RefusedArgument,
		`{"registryGroup":"EXECUTOR","registryKey":" ","registryValue":"http://h"}`:                                               RefusedArgument,
		`{"registryGroup":"EXECUTOR","registryKey":"a b","registryValue":"http://h"}`:                                             RefusedArgument,
		`{"registryGroup":"EXECUTOR","registryKey":"a","registryValue":null}`:                                                     RefusedArgument,
		`{"registryGroup":"EXECUTOR","registryKey":"a","registryValue":"h\u0000"}`:                                                RefusedArgument,
		`{"registryGroup":"EXECUTOR","registryKey":["a"],"registryValue":"http://h/"}`:                                            RefusedArgument,
		fmt.Sprintf(`{"registryGroup":"EXECUTOR","registryKey":%q,"registryValue":"http://h/"}`, strings.Repeat("a", fieldMax+1)): RefusedArgument,
	} {
		if _, err := ReadRegistration([]byte(body)); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", body, err, want)
		}
	}
}

func TestAnswersOfExecutors(t *testing.T) {
	for name, c := range map[string]struct {
		body    string
		code    int
		message string
		busy    bool
	}{
		"Java":                  {`{"code":200}`, 200, "", false},
		"Go":                    {`{"code":200,"msg":""}`, 200, "", false},
		"Python":                {`{"code": 200, "msg": "Running"}`, 200, "Running", false},
		"Java discards":         {`{"code":500,"msg":"block strategy effect：Discard Later"}`, 500, "block strategy effect：Discard Later", true},
		"Go refuses":            {`[{"logId":1014,"logDateTim":1,"executeResult":{"code":500,"msg":"There are tasks running"},"handleCode":500,"handleMsg":"There are tasks running"}]`, 500, "There are tasks running", true},
		"Python discards":       {`{"code": 500, "msg": "The same job [RunData(jobId=7)] is running"}`, 500, "The same job [RunData(jobId=7)] is running", true},
		"Java has no handler":   {`{"code":500,"msg":"job handler [x] not found."}`, 500, "job handler [x] not found.", false},
		"Go has no handler":     {`[{"logId":2,"handleCode":500,"handleMsg":"Task not registered"}]`, 500, "Task not registered", false},
		"Go, without a number":  {`[{"handleCode":500,"handleMsg":"no"}]`, 500, "no", false},
		"numbers in quotes":     {`{"code":"200","msg":7}`, 200, "7", false},
		"a byte order mark":     {"\uFEFF" + `{"code":200}`, 200, "", false},
		"Java 3.5, other paths": {`{"code":500,"msg":"invalid request, uri-mapping(/run) not found.","data":null}`, 500, "invalid request, uri-mapping(/run) not found.", false},
	} {
		a, err := ReadAnswer([]byte(c.body))
		if err != nil || a.Code != c.code || a.Message != c.message || a.IsBusy() != c.busy {
			t.Errorf("%s: got %+v, busy %v, %v", name, a, a.IsBusy(), err)
		}
		if other := strings.Contains(name, "3.5"); a.IsOtherPath() != other {
			t.Errorf("%s: is of another generation: %v", name, !other)
		}
	}
	for _, body := range []string{"", "<html>502</html>", "{}", "[]", `{"code":null}`, `"ok"`, `[{"logId":1}]`} {
		if a, err := ReadAnswer([]byte(body)); err == nil {
			t.Errorf("%q was read as %+v", body, a)
		}
	}
}

func TestLogsOfEachGeneration(t *testing.T) {
	const part = `{"fromLineNum":1,"toLineNum":4,"logContent":"a\nb\n","isEnd":true}`
	for _, body := range []string{
		`{"code":200,"content":` + part + `}`,
		`{"code":200,"msg":null,"content":null,"data":` + part + `}`,
		`{"code": 200, "msg": null, "content": ` + part + `, "data": ` + part + `}`,
		`{"code":200,"content":{"fromLineNum":"1","toLineNum":"4","logContent":"a\nb\n","isEnd":"true"}}`, // isEnd says nothing
		`{"code":200,"content":{"fromLineNum":1,"toLineNum":4,"logContent":"a\nb\n"}}`,
	} {
		a, err := ReadAnswer([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		if l, err := a.Log(); err != nil || l != (Log{1, 4, "a\nb\n", false}) {
			t.Errorf("%s: %+v, %v", body, l, err)
		}
	}
	for _, none := range []string{
		`{"code":200,"content":{"fromLineNum":1,"toLineNum":0,"logContent":"readLog fail, logFile not exists","isEnd":true}}`,
		`{"code":200,"content":{"fromLineNum":1,"toLineNum":1,"logContent":"No such logid logs.","isEnd":false}}`,
		`{"code":200,"data":{"fromLineNum":9,"toLineNum":0,"logContent":null,"isEnd":true}}`,
	} {
		a, _ := ReadAnswer([]byte(none))
		if l, err := a.Log(); err != nil || l.Text != "" || l.To != 0 {
			t.Errorf("%s: %+v, %v", none, l, err)
		}
	}
	for _, bad := range []string{`{"code":500,"msg":"x"}`, `{"code":200}`, `{"code":200,"content":"text"}`} {
		a, _ := ReadAnswer([]byte(bad))
		if l, err := a.Log(); err == nil {
			t.Errorf("%s was read as %+v", bad, l)
		}
	}
}

func TestLogsThatAreTooLongAreCut(t *testing.T) {
	text := strings.Repeat("Zeile äöü \"x\"\n", 100)
	part, _ := json.Marshal(map[string]any{"fromLineNum": 1, "toLineNum": 100, "logContent": text, "isEnd": false})
	answer := []byte(`{"code":200,"content":` + string(part) + `}`)
	if l, err := ReadLog(answer, len(text)); err != nil || l.Text != text || l.Cut {
		t.Errorf("all of it: %d bytes, cut %v, %v", len(l.Text), l.Cut, err)
	}
	for n := len(answer) - 1; n > 90; n-- { // of the answer as well
		l, err := ReadLog(answer[:n], 500)
		if err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		if !l.Cut || len(l.Text) > 500 || !strings.HasPrefix(text, l.Text) {
			t.Fatalf("%d bytes: cut %v, %q", n, l.Cut, l.Text)
		}
	}
	if _, err := ReadLog([]byte("<html>"), 10); err == nil {
		t.Error("what is no answer was read")
	}
}

// said returns callbacks without their original text.
func said(list []Callback) []Callback {
	list = slices.Clone(list)
	for i := range list {
		list[i].raw, list[i].inObject = nil, false
	}
	return list
}

func TestForwardedCallbacksAreAsTheyCame(t *testing.T) {
	for name, body := range map[string]string{
		"A":       `[{"logId":7,"logDateTim":17,"executeResult":{"code":200,"msg":"ok"}},{"logId":8,"logDateTim":18,"executeResult":{"code":502,"msg":null}}]`,
		"B and C": `[{"logId":7,"logDateTim":17,"handleCode":200,"handleMsg":"ok"}]`,
		"D":       `{"callbackList":[{"logId":7,"logDateTime":17,"handleCode":200,"handleMsg":{"rows":3}}]}`,
	} {
		list, unread, err := ReadCallbacks([]byte(body))
		if err != nil || unread != 0 {
			t.Fatal(err)
		}
		if got := string(Callbacks(list)); got != body {
			t.Errorf("%s: passed on is %s, and it came as %s", name, got, body)
		}
	}
	list, _, err := ReadCallbacks([]byte(`{"callbackList":[{"logId":7,"handleCode":200},{"logId":8,"handleCode":500}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(Callbacks(list[1:])); got != `{"callbackList":[{"logId":8,"handleCode":500}]}` {
		t.Errorf("a part of them is passed on as %s", got)
	}
}

func TestRequestsAreWrittenForAllGenerations(t *testing.T) {
	run := Trigger{JobID: 17, Handler: "orderSync", Params: "full", Block: BlockSerial, Timeout: 300, LogID: 1001, LogDateTime: 1795174508463, GlueType: "BEAN", GlueUpdatedAt: 1795174508400, Total: 1}
	for name, c := range map[string]struct{ got, want string }{
		"run": {string(run.Body()), `{"jobId":17,"executorHandler":"orderSync","executorParams":"full","executorBlockStrategy":"SERIAL_EXECUTION","executorTimeout":300,` +
			`"logId":1001,"logDateTime":1795174508463,"glueType":"BEAN","glueSource":"","glueUpdatetime":1795174508400,"broadcastIndex":0,"broadcastTotal":1}`},
		"job":      {string(OfJob(6)), `{"jobId":6}`},
		"log":      {string(OfLog(1001, 17, 1)), `{"logDateTim":17,"logDateTime":17,"logId":1001,"fromLineNum":1}`},
		"accepted": {string(Accepted()), `{"code":200,"msg":null,"content":null,"data":null}`},
		"refused":  {string(Refused(string(RefusedToken))), `{"code":500,"msg":"The access token is wrong.","content":null,"data":null}`},
		"path":     {RefusedPath("/x").Error(), `invalid request, uri-mapping(/x) not found.`},
		"address":  {Address("http://h:1//"), "http://h:1"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s, want %s", name, c.got, c.want)
		}
	}
}

// FuzzFromOutside reads what anyone may send: nothing panics, and what is read is bounded.
func FuzzFromOutside(f *testing.F) {
	for _, seed := range []string{
		"", "[]", `[{"logId":1,"handleCode":200,"handleMsg":"ok"}]`, `{"callbackList":[{"logId":1,"executeResult":{"code":500,"msg":{}}}]}`,
		`{"registryGroup":"EXECUTOR","registryKey":"a","registryValue":"http://h:1/"}`,
		`{"code":200,"content":{"fromLineNum":1,"toLineNum":2,"logContent":"x","isEnd":false}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		list, _, err := ReadCallbacks(body)
		if err != nil && len(list) > 0 {
			t.Error("a refused body has callbacks")
		}
		for _, c := range list {
			if c.LogID <= 0 || c.Code < 0 || len(c.Message) > MessageMax || !utf8.ValidString(c.Message) || strings.Contains(c.Message, "\x00") {
				t.Errorf("%+v", c)
			}
		}
		if r, err := ReadRegistration(body); err == nil && (r.Group == "" || r.Address == "") {
			t.Errorf("%+v", r)
		}
		if a, err := ReadAnswer(body); err == nil {
			if a.Code == 0 || len(a.Message) > MessageMax {
				t.Errorf("%+v", a)
			}
			_, _ = a.Log()
		}
		if !json.Valid(Refused(string(body))) {
			t.Error("a refusal is no JSON")
		}
	})
}
