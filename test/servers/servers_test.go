//go:build servers

package servers

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestEtcdKeepsWhatItHasAcknowledged(t *testing.T) {
	t.Parallel()
	cluster, err := NewEtcdCluster(3)
	if err != nil {
		t.Fatal(err)
	}
	for _, member := range cluster {
		t.Cleanup(func() {
			if err := member.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	for name, e := range map[string]*Etcd{"a single server": StartEtcd(t), "a member of three": cluster[0]} {
		key := base64.StdEncoding.EncodeToString([]byte("key"))
		value := base64.StdEncoding.EncodeToString([]byte("value"))
		post(t, e.URL()+"/v3/kv/put", fmt.Sprintf(`{"key": %q, "value": %q}`, key, value))
		if err := e.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := e.Start(); err != nil {
			t.Fatal(err)
		}
		if got := post(t, e.URL()+"/v3/kv/range", fmt.Sprintf(`{"key": %q}`, key)); !strings.Contains(got, value) {
			t.Errorf("%s says after a kill: %s", name, got)
		}
	}
}

// post returns the body of an answer that must be 200.
func post(t *testing.T, url, body string) string {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s: %s, %v", url, resp.Status, text, err)
	}
	return string(text)
}

func TestRedisKeepsWhatItHasAcknowledged(t *testing.T) {
	t.Parallel()
	r := StartRedis(t)
	do(t, r, "set", "key", "value")
	if err := r.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	if got := do(t, r, "get", "key"); got != "value" {
		t.Errorf("after a kill the key has %q", got)
	}
}

func do(t *testing.T, r *Redis, command ...string) string {
	t.Helper()
	answer, err := r.Do(command...)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

func TestAReplicaOfARedisClusterTakesOver(t *testing.T) {
	t.Parallel()
	c, err := NewRedisCluster(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	do(t, c.Nodes[0], "-c", "set", "{belfry}:key", "value")
	// Data that its replica lacks would be lost with it.
	offset := regexp.MustCompile(`(?:,offset=|master_repl_offset:)(\d+)`)
	await(t, func() bool {
		answer, err := c.Nodes[0].Do("info", "replication")
		offsets := offset.FindAllStringSubmatch(answer, -1)
		return err == nil && strings.Contains(answer, "state=online") && len(offsets) == 2 && offsets[0][1] == offsets[1][1]
	})
	if err := c.Nodes[0].Kill(); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool {
		answer, err := c.Nodes[1].Do("cluster", "nodes")
		return err == nil && strings.Count(answer, "master") == redisMasters+1 && strings.Contains(answer, "fail ")
	})
	await(t, func() bool {
		answer, err := c.Nodes[1].Do("-c", "get", "{belfry}:key")
		return err == nil && answer == "value"
	})
}

func TestSentinelsMakeAReplicaTheMaster(t *testing.T) {
	t.Parallel()
	s, err := NewRedisSentinel()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	first, err := s.Master()
	if err != nil || first != s.Servers[0] {
		t.Fatalf("the master is %v, %v", first, err)
	}
	do(t, first, "set", "key", "value")
	if answer := do(t, first, "wait", "2", "10000"); answer != "2" {
		t.Fatalf("%s replicas have the key", answer)
	}
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool {
		master, err := s.Master()
		if err != nil || master == first {
			return false
		}
		answer, err := master.Do("set", "key", "another")
		return err == nil && answer == "OK"
	})
}

// await fails a test if a condition does not hold in time.
func await(t *testing.T, holds func() bool) {
	t.Helper()
	err := eventually("it holds", func() (string, error) {
		if holds() {
			return "", nil
		}
		return "it does not", nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestFerretDBAnswers(t *testing.T) {
	t.Parallel()
	f := StartFerretDB(t)
	for range 2 {
		conn, err := net.DialTimeout("tcp", f.address(), startMax)
		if err != nil {
			t.Fatal(err)
		}
		if answer := mongoPing(t, conn); !bytes.Contains(answer, []byte("\x01ok\x00\x00\x00\x00\x00\x00\x00\xf0\x3f")) {
			t.Errorf("it answers %q", answer)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		if err := f.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := f.Start(); err != nil {
			t.Fatal(err)
		}
	}
}

// mongoPing sends {ping: 1, $db: "admin"} as the protocol of MongoDB has it, and returns
// the answer: https://www.mongodb.com/docs/manual/reference/mongodb-wire-protocol/.
func mongoPing(t *testing.T, conn net.Conn) []byte {
	t.Helper()
	if err := conn.SetDeadline(time.Now().Add(startMax)); err != nil {
		t.Fatal(err)
	}
	little := binary.LittleEndian
	document := "\x10ping\x00\x01\x00\x00\x00" + "\x02$db\x00\x06\x00\x00\x00admin\x00" + "\x00"
	body := append(make([]byte, 4), 0) // flags, and the kind of the section
	body = little.AppendUint32(body, uint32(4+len(document)))
	body = append(body, document...)
	const opMsg = 2013
	var message []byte
	for _, n := range []uint32{uint32(16 + len(body)), 1, 0, opMsg} {
		message = little.AppendUint32(message, n)
	}
	if _, err := conn.Write(append(message, body...)); err != nil {
		t.Fatal(err)
	}
	head := make([]byte, 16)
	if _, err := io.ReadFull(conn, head); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, little.Uint32(head)-16)
	if _, err := io.ReadFull(conn, answer); err != nil {
		t.Fatal(err)
	}
	return answer
}
