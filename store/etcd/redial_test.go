package etcd

import (
	"net"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// A server that closes each connection at once stands for one that is away.
func TestAnAbsentServerIsTriedAgainEachSecond(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	tries := make(chan time.Time, 1000)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			tries <- time.Now()
			_ = conn.Close()
		}
	}()
	a, err := parse("etcd://" + listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	client, err := clientv3.New(configOf(t.Context(), a))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	go func() { _, _ = client.Get(t.Context(), "key") }()

	last := <-tries
	for range 10 { // the tenth of gRPC's own is four minutes after the first
		select {
		case at := <-tries:
			if rest := at.Sub(last); rest > 3*redialMax {
				t.Fatalf("the server was tried again after %s", rest)
			}
			last = at
		case <-time.After(3 * redialMax):
			t.Fatalf("the server was not tried again within %s", 3*redialMax)
		}
	}
}
