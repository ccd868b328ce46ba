package cli_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/internal/check/kubetest"
	"github.com/belfry-cron/belfry/internal/cli"
)

// cronJobOf returns a CronJob of the namespace shop.
func cronJobOf(name string, suspend bool) string {
	return fmt.Sprintf(`{"kind":"CronJob","metadata":{"name":%q,"namespace":"shop"},"spec":{"schedule":"0 4 * * *","timeZone":"UTC","suspend":%v,
"jobTemplate":{"spec":{"template":{"metadata":{"creationTimestamp":null},"spec":{"restartPolicy":"OnFailure","initContainers":[{"name":"wait","image":"busybox"}],
"containers":[{"name":"main","image":"shop/夜:1","args":["{{x}}"]}]}}}}}}`, name, suspend)
}

func TestATakeOverOfCronJobsIsGivenBack(t *testing.T) {
	b := newBench(t)
	cluster := kubetest.New(t)
	for _, name := range []string{"a-first", "b-second", "c-third"} {
		cluster.AddCronJob(cronJobOf(name, false))
	}
	cluster.AddCronJob(cronJobOf("old", true))
	b.env["KUBECONFIG"] = cluster.Kubeconfig(t)
	states := func(want string) {
		t.Helper()
		var got []string
		for _, name := range []string{"a-first", "b-second", "c-third", "old"} {
			text, _, _ := b.run(nil, "job", "get", name, "-o", "yaml")
			got = append(got, fmt.Sprintf("%v/%v", cluster.Suspended(name), strings.Contains(text, "paused: true")))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("suspended/paused are %s, want %s", strings.Join(got, " "), want)
		}
	}
	takeOver := []string{"kubernetes", "import", "--live", "--jobs", "--apply", "--take-over"}
	do := func(want cli.ExitCode, says string, args ...string) {
		t.Helper()
		if out, errs, code := b.run(nil, args...); code != want || !strings.Contains(out+errs, says) {
			t.Errorf("%v ended with %d, want %d and %q:\n%s%s", args, code, want, says, out, errs)
		}
	}
	cluster.RefusePatchesAfter(1)
	do(cli.ExitFailed, "1 of 3 are taken over", takeOver...)
	cluster.RefusePatchesAfter(-1)
	states("true/false false/true false/true true/true")
	do(cli.ExitOK, "1 CronJob given back", "kubernetes", "give-back", "--yes")
	states("false/true false/true false/true true/true")
	do(cli.ExitOK, "3 CronJobs suspended", takeOver...)
	states("true/false true/false true/false true/true")
	do(cli.ExitOK, "0 CronJobs suspended", takeOver...)
	states("true/false true/false true/false true/true")
	do(cli.ExitOK, "unchanged", "kubernetes", "import", "--live", "--jobs", "--apply")
	states("true/false true/false true/false true/true")
	b.need("job", "delete", "b-second", "--yes")
	do(cli.ExitOK, "3 CronJobs given back", "kubernetes", "give-back", "--yes")
	states("false/true false/false false/true true/true")
	do(cli.ExitOK, "no CronJob of the namespace shop is taken over", "kubernetes", "give-back", "--yes")
	do(cli.ExitUsage, "--take-over needs --live and --apply", "kubernetes", "import", "--live", "--take-over")
	do(cli.ExitUsage, "choose one", "kubernetes", "import", "--live", "--jobs", "--shell")
	do(cli.ExitUsage, "--cluster needs --jobs", "kubernetes", "import", "--live", "--cluster", "x")
	defer do(cli.ExitOK, "stay so until belfry kubernetes give-back", "kubernetes", "import", "--live", "--undo", "--yes")
	text := b.need("job", "get", "a-first", "-o", "yaml")
	for _, want := range []string{"initContainers", "shop/夜:1", `{{ "{{" }}x}}`, "namespace: shop"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if strings.Contains(text, "restartPolicy") || strings.Contains(text, "creationTimestamp") {
		t.Errorf("the template is\n%s", text)
	}
}
