package job

// RunSpec is what a job runs: exactly one of Shell, HTTP and Handler. Flows
// will stand beside them. Commands, arguments, the interpreter's excepted,
// URLs, header values, bodies, standard input and the values of the
// environment are templates; see CompileTemplate.
type RunSpec struct {
	Shell   *Shell `json:"shell,omitzero" doc:"A command or a script on the node: a text for sh, or a mapping."`
	HTTP    *HTTP  `json:"http,omitzero" doc:"A request to a web server."`
	Handler string `json:"handler,omitzero" max:"256" doc:"The name of a function in a program of your own. No node has any yet: runs of it wait."`

	Env    map[string]string `json:"env,omitzero" items:"1000" doc:"Environment variables. Values are templates."`
	Dir    string            `json:"dir,omitzero" max:"4096" doc:"The working directory, an absolute path on the node. Default: the node's work directory."`
	User   string            `json:"user,omitzero" max:"64" doc:"The user of the node's machine to run as, by name or number."`
	Group  string            `json:"group,omitzero" max:"64" doc:"The group to run as. Default: the user's."`
	Umask  *Umask            `json:"umask,omitzero" doc:"The file mode creation mask in octal digits, for example 022."`
	Nice   int               `json:"nice,omitzero" min:"-20" max:"19" doc:"The scheduling priority, from -20 (first) to 19 (last)."`
	Stdin  string            `json:"stdin,omitzero" max:"1048576" doc:"What the command reads from its standard input. A template. Default: nothing."`
	Limits *Limits           `json:"limits,omitzero" doc:"What the command may use."`
}

// Shell is a command or a script. Exactly one of Command and Script is given.
//
// A Command without Args is a text for a shell, sh unless Interpreter names
// another. A Command with Args is a program that is executed as it is, no
// shell reads it. A Script is written to a file and executed by Interpreter
// with that file and Args as its arguments; it is not a template, since
// nothing is known about its language, and reads the environment instead.
type Shell struct {
	Command     string   `json:"command,omitzero" short:"true" max:"65536" doc:"A text for the shell; with args, the program to execute without a shell. A template."`
	Script      string   `json:"script,omitzero" max:"262144" doc:"A script for the interpreter. Not a template: it reads BELFRY_ variables."`
	Interpreter []string `json:"interpreter,omitzero" max:"4096" doc:"What executes the script or command, with its options: bash, or [python3, -u]. Default: what the first line of a script names behind #!, else sh; a command that is words without shell syntax is executed directly."`
	Args        []string `json:"args,omitzero" items:"1000" max:"65536" doc:"Arguments of the program or script, passed as they are. Templates."`
}

// HTTP is a request. What it reaches depends on the rules of the node.
type HTTP struct {
	Method    string            `json:"method,omitzero" max:"32" doc:"The method. Default: GET, or POST with a body."`
	URL       string            `json:"url" max:"8192" doc:"The address, with http or https. A template after the host; values are escaped."`
	Headers   map[string]string `json:"headers,omitzero" items:"100" max:"8192" doc:"The headers. Values are templates."`
	Body      string            `json:"body,omitzero" max:"1048576" doc:"The body. A template; values are escaped as the Content-Type wants, and as in JSON for a body that begins with { or [."`
	Expect    []string          `json:"expect,omitzero" max:"16" doc:"The status codes of success: 200, 200-204 or 2xx. Default: 2xx."`
	Match     string            `json:"match,omitzero" max:"4096" doc:"A regular expression (RE2) that the body of the answer must match."`
	JSON      map[string]string `json:"json,omitzero" items:"20" max:"4096" doc:"What the answer, read as JSON, must have: values by their place, for example {status: ok, data.items.0.state: ready}."`
	Redirects *int              `json:"redirects,omitzero" min:"0" max:"20" doc:"How many redirects are followed. Default: 10."`
	TLS       *TLS              `json:"tls,omitzero" doc:"How the server is recognised, and the node by the server."`
}

// TLS is how a server and a node recognise each other. Files are on the node.
type TLS struct {
	CA         string `json:"ca,omitzero" max:"4096" doc:"A file with the certificates to trust, in place of the system's."`
	Cert       string `json:"cert,omitzero" max:"4096" doc:"A file with the certificate to show, together with key."`
	Key        string `json:"key,omitzero" max:"4096" doc:"A file with the key of cert."`
	ServerName string `json:"server_name,omitzero" max:"256" doc:"The name that the certificate of the server must have. Default: the host of the URL."`
	Insecure   bool   `json:"insecure,omitzero" doc:"Accept any certificate."`
}

// Limits are what a command may use.
type Limits struct {
	Memory Size    `json:"memory,omitzero" min:"1MiB" max:"1024TiB" doc:"The most memory of all processes of the run, for example 512MiB. On a node without cgroup controllers: of each process."`
	CPU    float64 `json:"cpu,omitzero" min:"0.01" max:"1024" doc:"The most processors at a time; 0.5 is half of one. On a node without cgroup controllers: so many times the timeout is the processor time of each process, without a limit if there is no timeout."`
}
