package nodebench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/internal/remote/xxl"
	"github.com/belfry-cron/belfry/job"
)

const (
	xxlToken = "a-token-for-the-benchmark"
	xxlGroup = "bench"
	xxlStubs = 3
	// xxlSpread is how many jobs fall due each second, spread over it; xxlBurst how many at one
	// instant, as XXL-JOB's documents name it for a node.
	xxlSpread, xxlBurst = 1000, 5000
	// xxlBody is how many results one request brings.
	xxlBody = 500
	// xxlGather is how long a stub gathers results, as executors in Java do.
	xxlGather = 10 * time.Millisecond
)

// sentRun is a request for a run at a stub.
type sentRun struct {
	at     time.Time
	job    int // by its handler
	number int64
	run    string
	due    time.Time
}

// stub is an XXL-JOB executor that only reports success.
type stub struct {
	server  *http.Server
	address string
	admin   string

	mu      sync.Mutex
	holds   bool // it reports nothing
	sent    []sentRun
	ended   []int64 // results to report
	refused error
}

func newStub(admin string) (*stub, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &stub{address: "http://" + l.Addr().String(), admin: admin}
	s.server = &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	go func() { _ = s.server.Serve(l) }()
	return s, nil
}

func (s *stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	w.Header().Set("Content-Type", xxl.ContentType)
	if r.URL.Path != xxl.PathRun {
		_, _ = io.WriteString(w, `{"code":200,"content":{"fromLineNum":1,"toLineNum":0,"logContent":"","isEnd":true}}`)
		return
	}
	var t xxl.Trigger
	if err := json.NewDecoder(r.Body).Decode(&t); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	due, run, _ := strings.Cut(t.Params, " ")
	seconds, _ := strconv.ParseInt(due, 10, 64)
	number, _ := strconv.Atoi(strings.TrimPrefix(t.Handler, "h"))
	s.mu.Lock()
	s.sent = append(s.sent, sentRun{now, number, t.LogID, run, time.Unix(seconds, 0)})
	s.ended = append(s.ended, t.LogID)
	s.mu.Unlock()
	_, _ = io.WriteString(w, `{"code":200,"msg":null}`)
}

// say sends a request to the server like an executor.
func (s *stub) say(ctx context.Context, path string, body []byte) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.admin+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", xxl.ContentType)
	request.Header.Set(xxl.HeaderToken, xxlToken)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	said, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if answer, err := xxl.ReadAnswer(said); err != nil || !answer.OK() {
		return fmt.Errorf("%s was answered with %s", path, said)
	}
	return nil
}

func (s *stub) register(ctx context.Context) error {
	return s.say(ctx, "/api/registry", fmt.Appendf(nil, `{"registryGroup":"EXECUTOR","registryKey":%q,"registryValue":%q}`, xxlGroup, s.address))
}

// report sends up to most results in one request.
func (s *stub) report(ctx context.Context, most int) (n int, err error) {
	s.mu.Lock()
	n = min(most, len(s.ended))
	numbers := slices.Clone(s.ended[:n])
	s.ended = s.ended[n:]
	s.mu.Unlock()
	if n == 0 {
		return 0, nil
	}
	var list []string
	for _, number := range numbers {
		list = append(list, fmt.Sprintf(`{"logId":%d,"logDateTim":1,"handleCode":200,"handleMsg":null}`, number))
	}
	return n, s.say(ctx, "/api/callback", []byte("["+strings.Join(list, ",")+"]"))
}

// work reports results and signs of life until the context ends.
func (s *stub) work(ctx context.Context) {
	const beat = 20 * time.Second
	for next := time.Now().Add(beat); sleep(ctx, xxlGather) == nil; {
		err := error(nil)
		if time.Now().After(next) {
			err, next = s.register(ctx), time.Now().Add(beat)
		}
		s.mu.Lock()
		holds := s.holds
		s.mu.Unlock()
		if !holds && err == nil {
			_, err = s.report(ctx, xxlBody)
		}
		if err != nil && ctx.Err() == nil {
			s.mu.Lock()
			s.refused = err
			s.mu.Unlock()
		}
	}
}

// xxlLoad is a server and its stubs.
type xxlLoad struct {
	*server
	stubs []*stub
	stop  func()
}

// xxlServer starts a server that sends runs to stubs.
func (b *bench) xxlServer(ctx context.Context, dir string, jobs int) (*xxlLoad, error) {
	file := filepath.Join(dir, "token")
	if err := os.WriteFile(file, []byte(xxlToken+"\n"), 0o600); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		return nil, err
	}
	s, err := b.serve(ctx, filepath.Join(dir, "data"), "--capacity", strconv.Itoa(max(512, capacityFactor*jobs)), "--xxl-listen", address, "--xxl-token", file)
	if err != nil {
		return nil, err
	}
	working, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	load := &xxlLoad{server: s}
	load.stop = func() {
		stop()
		group.Wait()
		for _, one := range load.stubs {
			_ = one.server.Close()
		}
		s.kill()
	}
	for range xxlStubs {
		one, err := newStub("http://" + address)
		if err == nil {
			load.stubs = append(load.stubs, one)
			err = one.register(ctx)
		}
		if err != nil {
			load.stop()
			return nil, err
		}
		group.Go(func() { one.work(working) })
	}
	return load, nil
}

// xxlJob is a job for the stubs.
func xxlJob(i int, schedule job.Schedule) *job.Job {
	return &job.Job{
		Name: fmt.Sprintf("job-%d", i), Schedule: schedule,
		Run:   job.RunSpec{XXL: &job.XXL{Group: xxlGroup, Handler: fmt.Sprintf("h%d", i), Param: "{{ .Scheduled.Unix }} {{ .Run }}"}},
		Place: job.Place{Strategy: job.StrategyRoundRobin}, Policy: job.Policy{Overlap: job.OverlapAllow},
	}
}

// sentBetween returns the requests to stubs for runs due within a span, and how many of them were
// repeated.
func (l *xxlLoad) sentBetween(from, until time.Time, offset func(i int) time.Duration) (late lateness, twice int, err error) {
	seen := map[string]bool{}
	for _, s := range l.stubs {
		s.mu.Lock()
		err = errors.Join(err, s.refused)
		for _, one := range s.sent {
			if one.due.Before(from) || !one.due.Before(until) {
				continue
			}
			if seen[one.run] {
				twice++
			}
			seen[one.run] = true
			late = append(late, one.at.Sub(one.due.Add(offset(one.job))))
		}
		s.mu.Unlock()
	}
	return late.sort(), twice, err
}

// xxl measures a server from the side of XXL-JOB executors.
func (b *bench) xxl(ctx context.Context) ([]Figure, error) {
	spread, err := b.xxlSpread(ctx)
	if err != nil {
		return nil, err
	}
	burst, err := b.xxlBurst(ctx)
	return append(spread, burst...), err
}

func (b *bench) xxlSpread(ctx context.Context) ([]Figure, error) {
	dir, err := b.folder()
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	jobs := b.scaled(xxlSpread, 20)
	l, err := b.xxlServer(ctx, dir, jobs)
	if err != nil {
		return nil, err
	}
	defer l.stop()
	offset := func(i int) time.Duration { return time.Duration(i) * time.Second / time.Duration(jobs) }
	var list []*job.Job
	for i := range jobs {
		list = append(list, xxlJob(i, job.Schedule{Every: job.Duration(time.Second), Offset: job.Duration(offset(i))}))
	}
	if err := l.apply(ctx, list); err != nil {
		return nil, err
	}
	from := time.Now().Add(b.settling()).Truncate(time.Second).Add(time.Second)
	until := from.Add(time.Duration(b.Seconds) * time.Second)
	if err := sleep(ctx, time.Until(until.Add(time.Second))); err != nil {
		return nil, err
	}
	late, twice, err := l.sentBetween(from, until, offset)
	if err != nil {
		return nil, err
	}
	due := jobs * b.Seconds
	return []Figure{
		below(fmt.Sprintf("not sent, of %s runs in %d s, to %d stubs", number(float64(due), 0), b.Seconds, xxlStubs), float64(due+twice-len(late)), 0, 0, ""),
		below("sent twice", float64(twice), 0, 0, ""),
		atMost("late, p50", late.quantile(.5), 0),
		atMost("late, p99", late.quantile(.99), 50*time.Millisecond),
		atMost("late, the latest", late.quantile(1), 0),
	}, nil
}

func (b *bench) xxlBurst(ctx context.Context) ([]Figure, error) {
	dir, err := b.folder()
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	jobs := b.scaled(xxlBurst, 40)
	l, err := b.xxlServer(ctx, dir, jobs)
	if err != nil {
		return nil, err
	}
	defer l.stop()
	for _, s := range l.stubs {
		s.mu.Lock()
		s.holds = true
		s.mu.Unlock()
	}
	// All are created well before the instant.
	ahead := 20 * time.Second
	if b.Quick {
		ahead = 10 * time.Second // concurrently with all other scenarios
	}
	var due time.Time
	for ; ; ahead *= 2 { // a busy machine takes longer
		due = time.Now().Add(ahead).Truncate(time.Second)
		var list []*job.Job
		for i := range jobs {
			list = append(list, xxlJob(i, job.Schedule{At: []time.Time{due}}))
		}
		if err := l.apply(ctx, list); err != nil {
			return nil, err
		}
		if time.Now().Before(due.Add(-time.Second)) {
			break
		}
		if ahead > patience {
			return nil, errors.New("the jobs were made too late for their instant")
		}
	}
	const within = 10 * time.Second // after which an unsent request counts as missing
	for until := due.Add(within); time.Now().Before(until); {
		if late, _, err := l.sentBetween(due, due.Add(time.Second), func(int) time.Duration { return 0 }); err != nil || len(late) >= jobs {
			break
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return nil, err
		}
	}
	if err := sleep(ctx, time.Second); err != nil { // time for a second request
		return nil, err
	}
	late, twice, err := l.sentBetween(due, due.Add(time.Second), func(int) time.Duration { return 0 })
	if err != nil {
		return nil, err
	}
	var answers lateness
	reported := 0
	for _, s := range l.stubs {
		for {
			began := time.Now()
			n, err := s.report(ctx, xxlBody)
			if err != nil {
				return nil, err
			}
			if n == 0 {
				break
			}
			if reported += n; n == xxlBody || b.Quick {
				answers = append(answers, time.Since(began))
			}
		}
	}
	answers.sort()
	return []Figure{
		below(fmt.Sprintf("not sent, of %s runs due at one instant", number(float64(jobs), 0)), float64(jobs+twice-len(late)), 0, 0, ""),
		below("sent twice at one instant", float64(twice), 0, 0, ""),
		atMost("the first of them is late", late.quantile(0), 0),
		atMost("half of them are late at most", late.quantile(.5), 0),
		atMost("the last of them is late", late.quantile(1), time.Second),
		atMost(fmt.Sprintf("%d results in one request are answered within, p50", xxlBody), answers.quantile(.5), 0),
		atMost(fmt.Sprintf("%d results in one request are answered within, of %d requests", xxlBody, len(answers)), answers.quantile(1), 300*time.Millisecond),
	}, nil
}
