package i18n

import "testing"

func TestHintsOfAServerAreTranslated(t *testing.T) {
	for english, want := range map[string]string{
		"commands run as root, the user of the server: anyone who may define jobs can read its token and its store, whatever the namespace": "命令以服务器的用户 root 运行：能定义任务的人可以读取其令牌和存储，不论命名空间",
		"run belfry backup FILE each day":                                       "每天执行 belfry backup FILE",
		"run belfry backup FILE each day, and keep the file on another machine": "每天执行 belfry backup FILE，并将文件保存到其他机器",
		"512MiB free":    "可用 512MiB",
		"clock of ber-1": "节点 ber-1 的时钟",
		"store":          "存储",
		"its id was made on 2026-11-20; this server keeps finished runs for 90 d, at most 500 of a job, unless policy.keep of the job differs": "该 ID 生成于 2026-11-20；本服务器保留 90 天内结束的运行，每个任务最多 500 次，除非任务的 policy.keep 另有设置",
		"its id was made on 2026-11-20; this server keeps finished runs forever, unless policy.keep of the job differs":                        "该 ID 生成于 2026-11-20；本服务器永久保留已结束的运行，除非任务的 policy.keep 另有设置",
		"permission denied by the kernel": "permission denied by the kernel",
	} {
		if got := Chinese.Hint(english); got != want {
			t.Errorf("%q is %q, want %q", english, got, want)
		}
		if got := English.Hint(english); got != english {
			t.Errorf("in English %q has become %q", english, got)
		}
	}
}
