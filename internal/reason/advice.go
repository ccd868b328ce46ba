package reason

// advice is what to do about a reason.
type advice struct{ English, Chinese string }

// The advice. Codes with the same cause share one.
var (
	nothing  = advice{"Nothing: this is how the job, its schedule or a user wants it.", "无需处理：这是任务、调度计划或用户的意愿。"}
	parts    = advice{"See the reasons that it is made of.", "查看组成它的各个原因。"}
	wait     = advice{"Nothing for now: it continues when what it names is over.", "暂时无需处理：所述情况结束后会继续。"}
	output   = advice{"Read the cause and the output of the attempt, and mend the command, the handler or the service.", "查看该尝试的起因和输出，修复命令、处理器或服务。"}
	timing   = advice{"Find out why it takes so long, or raise policy.timeout.", "查明耗时原因，或调大 policy.timeout。"}
	nodes    = advice{"See the page of nodes: start one that suits, resume a drained one, or change place of the job.", "查看节点页面：启动合适的节点，恢复被排空的节点，或修改任务的 place。"}
	machine  = advice{"Look at the machine of the node: its log, memory, load, clock and network.", "检查节点所在机器：日志、内存、负载、时钟和网络。"}
	missed   = advice{"If the work must be made up, run the job by hand or set policy.missed; keep two nodes running.", "如需补做，请手动运行任务或设置 policy.missed；保持两个节点运行。"}
	watched  = advice{"Belfry must never do this: run the work by hand if it matters, see whether the store was restored, failed over or lost steps, and report it with this record.", "Belfry 绝不应如此：如有需要请手动补做，检查存储是否曾恢复、故障切换或丢失步骤，并附上此记录报告问题。"}
	stores   = advice{"Find out why the store was away, by its log and the network between: what fell due meanwhile is late, skipped or missed, by policy.", "通过存储的日志及其网络查明其不可用的原因：其间到期的运行按策略延迟、跳过或错过。"}
	overlap  = advice{"If runs overlap often, see how long they take, or change policy.overlap.", "若经常重叠，请查看运行耗时，或修改 policy.overlap。"}
	reports  = advice{"See whether the work runs elsewhere and can reach this server to report.", "检查外部工作是否在运行，以及能否向本服务器报告。"}
	steps    = advice{"Open the step that it names: its own reason and output say more.", "打开所述步骤：其原因和输出有更多信息。"}
	change   = advice{"Correct the job: the field or the name that it gives.", "修改任务中所述的字段或名称。"}
	params   = advice{"Give the parameter another value: in the request, or in the step or the job before it.", "为该参数提供其他值：在请求中，或在它之前的步骤或任务中。"}
	config   = advice{"Change the configuration of the node, or place the job on another one.", "修改该节点的配置，或将任务放到其他节点。"}
	engines  = advice{"See on the machine of the node whether Docker or Podman answers on its socket, by belfry doctor, or place the job on another node.", "用 belfry doctor 检查该节点上 Docker 或 Podman 的套接字是否应答，或将任务放到其他节点。"}
	images   = advice{"Check the name of the image, the login of run.container.registry, and the way from the node to the registry.", "检查镜像名称、run.container.registry 的登录信息，以及节点到镜像仓库的网络。"}
	clusters = advice{"Look at the pod and the nodes of the cluster, by kubectl describe pod, and at the way from the node of Belfry to the API of the cluster.", "用 kubectl describe pod 检查 Pod 和集群节点，以及 Belfry 节点到集群 API 的网络。"}
	service  = advice{"See whether the service answers, by its own log and from the machine of the node.", "通过服务的日志并从节点所在机器检查服务是否应答。"}
	fences   = advice{"The work may have been done in part. Look at the machine of the node and its connection to the store.", "工作可能已部分完成。检查节点所在机器及其与存储的连接。"}
	limits   = advice{"Raise the limit in limits of the job, or let the command use less.", "调大任务 limits 中的限制，或让命令少用资源。"}
	used     = advice{"Let it use less, or change policy.expect.", "减少其资源用量，或修改 policy.expect。"}
	expect   = advice{"Find out what delays it, or change policy.expect.", "查明延迟原因，或修改 policy.expect。"}
	person   = advice{"Answer it on the page of the run, or by belfry run approve or reject.", "在运行页面，或用 belfry run approve 或 reject 答复。"}
)
