package job

import "testing"

// The work of a server for each document of an applied file.
func BenchmarkDecodeAndCheck(b *testing.B) {
	text := []byte(`{"kind":"job","namespace":"default","name":"report-17","labels":{"team":"billing"},
		"schedule":{"cron":"17 4 * * 1-5","timezone":"Europe/Berlin"},"run":{"shell":"/usr/local/bin/report --for customer"},
		"policy":{"timeout":"10m","retry":{"attempts":3}}}`)
	b.ReportAllocs()
	for b.Loop() {
		list, err := Decode("", text)
		if err == nil {
			err = list[0].Validate()
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
