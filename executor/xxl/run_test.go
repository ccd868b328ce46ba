package xxlexec

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/internal/node/output"
	"github.com/belfry-cron/belfry/internal/remote/xxl"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

type outputChunk = output.Chunk

const plain = `run: {xxl: {group: g, handler: h, param: full, id: 17}}`

func TestARunIsSentOnceAndEndsByItsCallback(t *testing.T) {
	for generation, callback := range map[string]string{
		"A": `[{"logId":%d,"logDateTim":1,"executeResult":{"code":200,"msg":"ok"}}]`,
		"B": `[{"logId":%d,"logDateTim":1,"handleCode":200,"handleMsg":"ok"}]`,
		"C": `[{"logId":%d,"logDateTim":1,"handleCode":200}]`,
		"D": `{"callbackList":[{"logId":%d,"logDateTime":1,"handleCode":200,"handleMsg":"ok"}]}`,
	} {
		t.Run(generation, func(t *testing.T) {
			bubble(t, func(r *rig) {
				text, path := "", "/run"
				if generation == "D" {
					text, path = "D", "/trigger"
				}
				e := r.executor("g", "10.0.0.5:9999", text)
				a := r.run(plain + "\npolicy: {timeout: 1500ms}")
				if !a.result.HandedOver || e.sent(path) != 1 || len(e.asked) != 1 {
					t.Fatalf("result %+v, asked %v", a.result, e.asked)
				}
				sent := e.last()
				want := xxl.Trigger{
					JobID: 17, Handler: "h", Params: "full", Block: "SERIAL_EXECUTION", Timeout: 2, LogID: 1, LogDateTime: time.Now().UnixMilli(), GlueType: "BEAN", Total: 1,
				}
				if sent != want || e.header.Get(xxl.HeaderToken) != token || (e.header.Get(xxl.HeaderGroup) == "g") != (generation == "D") {
					t.Errorf("sent %+v with %v", sent, e.header)
				}
				r.say(r.newAdmin(), "/api/callback", nil, fmt.Sprintf(callback, sent.LogID), 200) // another node takes it
				r.wants(a, job.OutcomeSucceeded, "")
			})
		})
	}
}

func TestACallbackMayComeBeforeTheAnswer(t *testing.T) {
	bubble(t, func(r *rig) {
		e := r.executor("g", "10.0.0.5:9999", "")
		e.answer = func(path string, s *xxl.Trigger) string {
			if path == "/run" {
				r.callback(r.admin, s.LogID, 500, "at once")
			}
			return ""
		}
		a := r.run(plain)
		if !a.result.HandedOver {
			t.Errorf("%+v", a.result)
		}
		r.wants(a, job.OutcomeFailed, "at once")
	})
}

func TestUncertainRequestIsNotRepeated(t *testing.T) {
	for name, answer := range map[string]string{"hangs up": hangsUp, "no answer of an executor": "<html>bad gateway</html>"} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				e, other := r.executor("g", "10.0.0.5:9999", ""), r.executor("g", "10.0.0.6:9999", "")
				e.answer = func(string, *xxl.Trigger) string { return answer }
				a := r.run(plain + "\nplace: {strategy: first}")
				if !a.result.HandedOver || e.sent("/run") != 1 || other.sent("/run") != 0 {
					t.Errorf("%+v, sent %d and %d times", a.result, e.sent("/run"), other.sent("/run"))
				}
			})
		})
	}
	t.Run("silent", func(t *testing.T) {
		bubble(t, func(r *rig) {
			e, other := r.executor("g", "10.0.0.5:9999", ""), r.executor("g", "10.0.0.6:9999", "")
			e.answer = func(string, *xxl.Trigger) string { time.Sleep(time.Minute); return "" }
			begun := time.Now()
			a := r.run(plain + "\nplace: {strategy: first}")
			if took := time.Since(begun); !a.result.HandedOver || other.sent("/run") != 0 || took != answerWait {
				t.Errorf("%+v after %v", a.result, took)
			}
			time.Sleep(time.Minute)
		})
	})
}

func TestUnreachableExecutorIsSkipped(t *testing.T) {
	bubble(t, func(r *rig) {
		r.executor("g", "10.0.0.5:9999", "")
		other := r.executor("g", "10.0.0.6:9999", "")
		r.cut("10.0.0.5:9999")
		a := r.run(plain + "\nplace: {strategy: first}")
		if sent := other.last(); !a.result.HandedOver || sent.LogID != 2 {
			t.Errorf("%+v, sent as number %d", a.result, sent.LogID)
		}
		r.callback(r.admin, 2, 200, "")
		r.wants(a, job.OutcomeSucceeded, "")

		r.cut("10.0.0.6:9999")
		r.wants(r.run(plain+"\nplace: {strategy: last}"), job.OutcomeFailed,
			"no executor of the group g can be reached: http://10.0.0.6:9999 (connection refused), http://10.0.0.5:9999 (connection refused)")
		r.wants(r.run(`run: {xxl: {group: other, handler: h}}`), job.OutcomeFailed, "no executor of the group other is registered")
	})
}

func TestRefusals(t *testing.T) {
	const array = `[{"logId":1,"handleCode":500,"handleMsg":"%s"}]`
	for _, c := range []struct {
		name, policy, answer string
		outcome              job.Outcome
		reason               string
		sent                 int
	}{
		{"no handler", "skip", `{"code":500,"msg":"job handler [h] not found."}`, job.OutcomeFailed, "http://10.0.0.5:9999 has refused it: job handler [h] not found.", 1},
		{"no handler, Go", "skip", fmt.Sprintf(array, "Task not registered"), job.OutcomeFailed, "has refused it: Task not registered", 1},
		{"wrong token", "skip", `{"code":500,"msg":"The access token is wrong."}`, job.OutcomeFailed, "The access token is wrong.", 1},
		{"block, allowed", "allow", fmt.Sprintf(array, "There are tasks running"), job.OutcomeSkipped, "runs the job already: There are tasks running", 1},
		{"block, nothing of it runs", "skip", `{"code":500,"msg":"block strategy effect：Discard Later"}`, job.OutcomeFailed, "Discard Later", 41},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				e := r.executor("g", "10.0.0.5:9999", "")
				e.answer = func(string, *xxl.Trigger) string { return c.answer }
				r.wants(r.run(plain+"\npolicy: {overlap: "+c.policy+"}"), c.outcome, c.reason)
				if n := e.sent("/run"); n != c.sent {
					t.Errorf("sent %d times, want %d", n, c.sent)
				}
			})
		})
	}
}

// Shards, and steps and items of a flow, are one job to an executor. Steps allow overlaps.
func TestShardThatAnExecutorRefusesBesideAnotherWaits(t *testing.T) {
	bubble(t, func(r *rig) {
		e := r.executor("g", "10.0.0.5:9999", "")
		e.answer = func(_ string, sent *xxl.Trigger) string {
			if sent.Index > 0 {
				return `[{"logId":1,"handleCode":500,"handleMsg":"There are tasks running"}]`
			}
			return ""
		}
		for _, policy := range []string{"", "\npolicy: {overlap: allow}"} {
			j := r.put(plain + "\nplace: {shards: 2}" + policy)
			if a := r.runOf(j, 0, 2); !a.result.HandedOver {
				t.Errorf("%+v", a.result)
			}
			a := r.runOf(j, 1, 2)
			if !a.result.Unstarted || !a.result.Postponed || !strings.Contains(a.result.Reason.String(), "runs the job already: There are tasks running") {
				t.Errorf("the second shard ends as %+v, want it to wait", a.result)
			}
		}
		j := r.put(strings.Replace(plain, "xxl: {", "xxl: {block: discard_later, ", 1) + "\nplace: {shards: 2}\npolicy: {overlap: allow}")
		if a := r.runOf(j, 1, 2); a.result.Outcome != job.OutcomeSkipped {
			t.Errorf("with discard_later the second shard ends as %+v, want it skipped", a.result)
		}
		r.aged = siblingMax + time.Hour
		r.wants(r.runOf(r.put(plain+"\nplace: {shards: 2}"), 1, 2), job.OutcomeFailed, "it waited for 1 d 1 h 2 s: the executor http://10.0.0.5:9999 runs the job already")
	})
}

// Java takes some milliseconds to notice the end of a run.
func TestBrieflyBusyExecutorGetsTheRunAgain(t *testing.T) {
	bubble(t, func(r *rig) {
		e := r.executor("g", "10.0.0.5:9999", "")
		e.answer = func(string, *xxl.Trigger) string {
			if e.sent("/run") < 3 {
				return `{"code":500,"msg":"block strategy effect：Discard Later"}`
			}
			return ""
		}
		if a := r.run(plain); !a.result.HandedOver || e.last().LogID != 1 {
			t.Errorf("%+v as number %d", a.result, e.last().LogID)
		}
	})
}

func TestAnExecutorOfTheLatestGenerationShowsItselfByItsAnswer(t *testing.T) {
	bubble(t, func(r *rig) {
		e := r.executor("g", "10.0.0.5:9999", "")
		e.answer = func(path string, _ *xxl.Trigger) string {
			if path == "/run" {
				return `{"code":500,"msg":"invalid request, uri-mapping(/run) not found."}`
			}
			return ""
		}
		for range 2 {
			if a := r.run(plain); !a.result.HandedOver {
				t.Errorf("%+v", a.result)
			}
		}
		if e.sent("/run") != 1 || e.sent("/trigger") != 2 || e.header.Get(xxl.HeaderGroup) != "g" {
			t.Errorf("asked %v with %v", e.asked, e.header)
		}
	})
}

func TestBlockStrategyGlueAndShardsAreSent(t *testing.T) {
	bubble(t, func(r *rig) {
		e := r.executor("g", "10.0.0.5:9999", "")
		r.run(`run: {xxl: {group: g, handler: h, block: cover_early}}` + "\npolicy: {overlap: allow}")
		if sent := e.last(); sent.Block != "COVER_EARLY" || sent.JobID < 1<<30 {
			t.Errorf("sent %+v", sent)
		}
		const glue = `run: {xxl: {group: g, glue: {type: python, source: "print(1)", updated: 2026-11-01T00:00:00.123Z}}}`
		r.wants(r.run(glue), job.OutcomeFailed, "xxl.glue of its configuration allows that")
		r.must(r.admin.Set(Settings{Tokens: []string{token}, Glue: true}))
		r.run(glue)
		if sent := e.last(); sent.GlueType != "GLUE_PYTHON" || sent.GlueSource != "print(1)" || sent.GlueUpdatedAt != time.Date(2026, 11, 1, 0, 0, 0, 123e6, time.UTC).UnixMilli() || sent.Handler != "" {
			t.Errorf("sent %+v", sent)
		}
		r.executor("g", "10.0.0.6:9999", "")
		j := r.put(plain + "\nplace: {strategy: broadcast}\npolicy: {overlap: allow}")
		for shard := range 3 { // one executor has left since the planning
			r.runOf(j, shard, 3)
		}
		var got []string
		for _, s := range e.triggers[len(e.triggers)-2:] {
			got = append(got, fmt.Sprintf("%d/%d", s.Index, s.Total))
		}
		if fmt.Sprint(got) != "[0/3 2/3]" {
			t.Errorf("the first executor got the shards %v", got)
		}
	})
}

func TestStrategies(t *testing.T) {
	for strategy, want := range map[string]string{
		"first": "aaaaaa", "last": "cccccc", "round_robin": "abcabc", "least_frequently_used": "abcabc", "least_recently_used": "abcabc", "first_idle": "bbbbbb",
	} {
		t.Run(strategy, func(t *testing.T) {
			bubble(t, func(r *rig) {
				names := map[string]string{}
				for i, name := range []string{"a", "b", "c"} {
					addr := fmt.Sprintf("10.0.0.%d:9999", i+1)
					names["http://"+addr] = name
					r.executor("g", addr, "").busy = name == "a"
				}
				j := r.put(plain + "\nplace: {strategy: " + strategy + "}\npolicy: {overlap: allow}")
				var got strings.Builder
				for i := range 6 {
					time.Sleep(time.Second)
					r.runOf(j, 0, 0)
					got.WriteString(names[r.handover(int64(i+1)).To])
				}
				if got.String() != want {
					t.Errorf("sent to %s, want %s", got.String(), want)
				}
			})
		})
	}
	t.Run("hash", func(t *testing.T) {
		bubble(t, func(r *rig) {
			for i := range 5 {
				r.executor("g", fmt.Sprintf("10.0.0.%d:9999", i+1), "")
			}
			used := map[string]bool{}
			for range 12 {
				j := r.put(plain + "\nplace: {strategy: hash}\npolicy: {overlap: allow}")
				before := r.runOf(j, 0, 0)
				again := r.runOf(j, 0, 0)
				to, same := r.handoverOf(before), r.handoverOf(again)
				if used[to.To] = true; to.To != same.To {
					t.Errorf("a job went to %s and to %s", to.To, same.To)
				}
			}
			if len(used) < 3 {
				t.Errorf("12 jobs went to %v", used)
			}
		})
	})
	t.Run("none is idle", func(t *testing.T) {
		bubble(t, func(r *rig) {
			r.executor("g", "10.0.0.5:9999", "").busy = true
			r.wants(r.run(plain+"\nplace: {strategy: first_idle}"), job.OutcomeFailed, "no executor of the group g is idle: http://10.0.0.5:9999 (busy: job thread is running or has trigger queue.)")
		})
	})
}

// Simultaneous runs choose before any of them was sent.
func TestRunsOfOneMomentAreSpread(t *testing.T) {
	list := []target{{address: "a"}, {address: "b"}, {address: "c"}}
	for _, strategy := range []job.Strategy{job.StrategyRoundRobin, job.StrategyLeastFrequentlyUsed, job.StrategyLeastRecentlyUsed} {
		var r routes
		r.init()
		got := ""
		for range 6 {
			got += r.order(list, strategy, job.ID{1}, 0)[0].address
		}
		if got != "abcabc" {
			t.Errorf("%s chooses %s", strategy, got)
		}
	}
}

func (r *rig) handover(number int64) store.Handover {
	r.Helper()
	list, err := r.store.Handovers(r.Context(), store.HandoverQuery{Numbers: []int64{number}, Limit: store.MaxBatch})
	r.must(err)
	if len(list) != 1 {
		r.Fatalf("handover %d: %+v", number, list)
	}
	return list[0]
}

func (r *rig) handoverOf(a attempt) store.Handover {
	r.Helper()
	list, err := r.store.Handovers(r.Context(), store.HandoverQuery{Run: a.Run, Limit: store.MaxBatch})
	r.must(err)
	if len(list) == 0 {
		r.Fatal("the run was not handed over")
	}
	return list[len(list)-1]
}

func TestResults(t *testing.T) {
	for _, c := range []struct {
		name, body string
		outcome    job.Outcome
		reason     string
	}{
		{"failure with its words", `[{"logId":1,"handleCode":500,"handleMsg":"no rows"}]`, job.OutcomeFailed, "no rows"},
		{"failure without words", `[{"logId":1,"handleCode":500}]`, job.OutcomeFailed, "the executor reported code 500"},
		{"another code", `[{"logId":1,"handleCode":1,"handleMsg":null}]`, job.OutcomeFailed, "code 1"},
		{"no code", `[{"logId":1}]`, job.OutcomeFailed, "without a code"},
		{"timeout", `[{"logId":1,"handleCode":502,"handleMsg":"job execute timeout"}]`, job.OutcomeTimedOut, "job execute timeout"},
		{"twice in one body", `[{"logId":1,"handleCode":200},{"logId":1,"handleCode":500}]`, job.OutcomeSucceeded, ""},
		{"with one that is not known", `[{"logId":999999,"handleCode":500},{"logId":1,"handleCode":200}]`, job.OutcomeSucceeded, ""},
		{"with one that cannot be read", `[{"logId":"?"},{"logId":1,"handleCode":200}]`, job.OutcomeSucceeded, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.executor("g", "10.0.0.5:9999", "")
				a := r.run(plain)
				r.say(r.admin, "/api/callback", nil, c.body, 200)
				r.wants(a, c.outcome, c.reason)
				r.callback(r.admin, 1, 500, "again") // Java repeats results that it believes lost
				r.wants(a, c.outcome, c.reason)
			})
		})
	}
}

// Executors in Go report runs that they ended at their timeout as a success.
func TestASuccessLaterThanTheTimeoutIsATimeout(t *testing.T) {
	bubble(t, func(r *rig) {
		r.executor("g", "10.0.0.5:9999", "")
		a := r.run(plain + "\npolicy: {timeout: 10s}")
		b := r.run(plain + "\npolicy: {timeout: 10s, overlap: allow}") // it may have waited in a queue
		time.Sleep(10*time.Second + time.Millisecond)
		r.callback(r.admin, 1, 200, "cancelled")
		r.callback(r.admin, 2, 200, "")
		r.wants(a, job.OutcomeTimedOut, "10.001 s after it was sent, later than the timeout of 10 s")
		r.wants(b, job.OutcomeSucceeded, "")
	})
}

func TestLogsBecomeOutput(t *testing.T) {
	bubble(t, func(r *rig) {
		e := r.executor("g", "10.0.0.5:9999", "")
		e.log = "started <br>----- start -----\nzwei\n"
		a := r.run(plain)
		r.callback(r.admin, 1, 200, "3 rows")
		if got, want := r.output(a), "started \n----- start -----\nzwei\nThe executor reported: 3 rows\n"; got != want {
			t.Errorf("kept %q, want %q", got, want)
		}
		records, err := r.store.AttemptsOf(r.Context(), a.Run)
		r.must(err)
		if records[0].OutputBytes == 0 {
			t.Error("the record does not say how much there is")
		}
		body := func(i int) []byte { return xxl.OfLog(1, r.sentAt(1), i) }
		var first struct{ LogDateTim, LogDateTime int64 }
		_ = json.Unmarshal(body(1), &first)
		if first.LogDateTim != e.triggers[0].LogDateTime || first.LogDateTime != first.LogDateTim {
			t.Errorf("asked for the log of %+v, sent at %d", first, e.triggers[0].LogDateTime)
		}

		// A hanging log does not delay the result, and is stored after it.
		r.keep(r.admin)
		e.set(func(e *stub) {
			e.answer = func(path string, _ *xxl.Trigger) string {
				if path == "/log" {
					time.Sleep(time.Second)
				}
				return ""
			}
		})
		b := r.run(plain)
		begun := time.Now()
		r.callback(r.admin, 2, 500, "no")
		if took := time.Since(begun); took > logsWithin {
			t.Errorf("the answer took %v", took)
		}
		r.wants(b, job.OutcomeFailed, "no")
		time.Sleep(5 * time.Second)
		if got := r.output(b); !strings.Contains(got, "zwei") {
			t.Errorf("kept %q", got)
		}
	})
}

func (r *rig) sentAt(number int64) int64 {
	r.Helper()
	h := r.handover(number)
	ab, err := aboutOf(&h)
	r.must(err)
	return ab.SentAt
}

func TestALogWithoutLineNumbersIsReadOnce(t *testing.T) {
	for _, numbers := range []string{``, `"toLineNum":null,`, `"toLineNum":0,`} {
		bubble(t, func(r *rig) {
			e := r.executor("g", "10.0.0.5:9999", "")
			e.answer = func(path string, _ *xxl.Trigger) string {
				if path == "/log" { // whatever the first line is
					return `{"code":200,"data":{` + numbers + `"logContent":"one\ntwo\n"}}`
				}
				return ""
			}
			a := r.run(plain)
			for range 2 {
				list, err := r.admin.Log(r.Context(), a.Run, 1)
				r.must(err)
				if len(list) != 1 {
					t.Errorf("%s: %d chunks while it runs", numbers, len(list))
				}
				time.Sleep(2 * liveEvery)
			}
			r.callback(r.admin, 1, 200, "")
			if got := r.output(a); got != "one\ntwo\n" {
				t.Errorf("%s: kept %q", numbers, got)
			}
		})
	}
}

func TestCompressedBodiesAreRead(t *testing.T) {
	bubble(t, func(r *rig) {
		e := r.executor("g", "10.0.0.5:9999", "")
		e.compress = true
		e.log = "packed\n"
		a := r.run(plain)
		say := func(body string, want int) {
			t.Helper()
			r.say(r.admin, "/api/callback", http.Header{xxl.HeaderToken: {token}, "Content-Encoding": {"gzip"}}, body, want)
		}
		say(`[{"logId":1,"handleCode":500}]`, 500)             // the body is not in this encoding
		say(packed("["+strings.Repeat(" ", bodyMax)+"]"), 500) // small when compressed
		say(packed(`[{"logId":1,"handleCode":200,"handleMsg":"3 rows"}]`), 200)
		r.wants(a, job.OutcomeSucceeded, "")
		if got := r.output(a); got != "packed\nThe executor reported: 3 rows\n" {
			t.Errorf("kept %q", got)
		}
	})
}

func TestALongLogIsCut(t *testing.T) {
	bubble(t, func(r *rig) {
		r.admin.outputLimit = 10_000
		r.executor("g", "10.0.0.5:9999", "").log = strings.Repeat("0123456789abcde\n", 100_000)
		a := r.run(plain)
		r.callback(r.admin, 1, 200, "")
		if got := r.output(a); len(got) > 11_000 || !strings.Contains(got, "the log is longer than 10000 bytes") {
			t.Errorf("kept %d bytes, at the end %q", len(got), got[max(0, len(got)-100):])
		}
	})
}

func TestUnstoredCallbackIsNotAcknowledged(t *testing.T) {
	bubble(t, func(r *rig) {
		r.executor("g", "10.0.0.5:9999", "")
		a := r.run(plain)
		r.admin.store = away{r.store}
		r.say(r.admin, "/api/callback", nil, `[{"logId":1,"handleCode":200}]`, 500)
		r.wants(a, "", "")
		r.admin.store = r.store
		r.callback(r.admin, 1, 200, "")
		r.wants(a, job.OutcomeSucceeded, "")
		synctest.Wait()
	})
}

func TestLiveLogIsReadInPieces(t *testing.T) {
	bubble(t, func(r *rig) {
		e := r.executor("g", "10.0.0.5:9999", "")
		a := r.run(plain)
		text := func() (text string, chunks int) {
			list, err := r.admin.Log(r.Context(), a.Run, 1)
			r.must(err)
			for i := range list {
				if chunk := outputChunk(list[i]); chunk.Seq != i || chunk.Offset != int64(len(text)) {
					t.Errorf("chunk %d has the number %d and the offset %d, want %d", i, chunk.Seq, chunk.Offset, len(text))
				} else {
					for piece, err := range chunk.Pieces() {
						r.must(err)
						text += string(piece.Data)
					}
				}
			}
			return text, len(list)
		}
		var want string
		for i := range 3 {
			line := fmt.Sprintf("line %d <br>\n", i)
			want += fmt.Sprintf("line %d \n\n", i)
			e.set(func(e *stub) { e.log += line })
			time.Sleep(liveEvery)
			for range 5 { // several who follow
				if got, n := text(); got != want || n != i+1 {
					t.Errorf("read %q in %d chunks, want %q", got, n, want)
				}
			}
		}
		if n := e.sent("/log"); n != 3 {
			t.Errorf("asked %d times", n)
		}
		r.callback(r.admin, 1, 200, "")
		if got := r.output(a); got != want {
			t.Errorf("after its end %q is kept, want %q", got, want)
		}
	})
}
