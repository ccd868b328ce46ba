package etcd

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/replica"
)

func TestAddressesAreRead(t *testing.T) {
	a, err := parse("etcd://u%40x:p%2Fw@one:1,two,[::1]:3/some/where/?tls=true&compact=off&server-name=etcd")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(a.Hosts, []string{"one:1", "two:2379", "[::1]:3"}) || a.User != "u@x" || a.Password != "p/w" ||
		a.Prefix != "some/where" || a.compact || a.TLS == nil || a.TLS.ServerName != "etcd" {
		t.Errorf("got %+v", a)
	}
	if a, err = parse("etcd://one"); err != nil || a.Prefix != "belfry" || !a.compact || a.TLS != nil {
		t.Errorf("got %+v, %v", a, err)
	}
}

func TestMistakesInAddressesAreNamed(t *testing.T) {
	for address, want := range map[string]string{
		"etcd:///belfry":                      "a host is missing",
		"etcd://a,,b":                         "a host is missing",
		"etcd://u:%zz@a":                      "in the password",
		"etcd://a?tsl=true":                   `unknown parameter "tsl"`,
		"etcd://a?tls=maybe":                  `"maybe" is neither true nor false`,
		"etcd://a?tls=false&ca=/x":            "tls=false stands beside",
		"etcd://a?compact=5":                  `"5" is neither on nor off`,
		"etcd://a?ca=/does/not/exist":         "no such file",
		"etcd://a?cert=/does/not/exist":       "cert and key stand together",
		"postgres://a":                        "does not begin with etcd://",
		"etcd://a?cert=/no/such&key=/no/such": "cert and key",
	} {
		if _, err := parse(address); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", address, err, want)
		}
	}
}

// A server counts in each transaction the larger of its compares and operations; nested
// transactions may use the rest.
func TestNestedTransactionsStayWithinTheLimit(t *testing.T) {
	for _, n := range []int{129, 500, 1000, 2000} {
		for _, compares := range []int{0, 1, 60, comparesMax} {
			ops := make([]clientv3.Op, n)
			for i := range ops {
				ops[i] = clientv3.OpDelete("k")
			}
			list := nested(ops, compares)
			outer, inner := max(len(list), compares), 0
			total := 0
			for _, op := range list {
				_, then, _ := op.Txn()
				inner, total = max(inner, len(then)), total+len(then)
			}
			if total != n {
				t.Errorf("%d operations became %d", n, total)
			}
			if most := (opsMax - compares) * opsMax; n <= most/2 && outer+inner > opsMax {
				t.Errorf("%d operations beside %d compares: %d outer and %d inner ones", n, compares, outer, inner)
			}
		}
	}
}

// A commit whose compares leave no room for nested transactions is refused before it is sent.
func TestACommitWithTooManyComparesIsRefused(t *testing.T) {
	txn := &replica.Txn{Compares: map[string]int64{}}
	for i := range opsMax {
		key := fmt.Sprint(i)
		txn.Compares[key] = 1
		txn.Puts = append(txn.Puts, replica.Pair{Key: key}, replica.Pair{Key: key + "/"})
	}
	if _, done, err := (&driver{}).Commit(t.Context(), txn); done || !errors.Is(err, store.ErrTooMany) {
		t.Errorf("got %v, %v", done, err)
	}
}
