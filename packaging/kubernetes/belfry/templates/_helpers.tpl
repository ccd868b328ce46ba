{{- define "belfry.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- /* Names of pods add a pool and two suffixes, and are host names of 63 characters at most. */ -}}
{{- define "belfry.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains (include "belfry.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "belfry.name" .) | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "belfry.selector" -}}
app.kubernetes.io/name: {{ include "belfry.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "belfry.labels" -}}
{{ include "belfry.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "belfry.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}{{ default (include "belfry.fullname" .) .Values.serviceAccount.name }}{{ else }}{{ default "default" .Values.serviceAccount.name }}{{ end }}
{{- end }}

{{- /* The address of the servers for workers and clients in the cluster. */ -}}
{{- define "belfry.url" -}}
{{ ternary "https" "http" (not (empty .Values.tls.secretName)) }}://{{ include "belfry.fullname" . }}.{{ .Release.Namespace }}.svc:{{ .Values.service.port }}
{{- end }}

{{- /* The configuration file of nodes with the store: the names of the service, the files of Secrets, and .config over them. */ -}}
{{- define "belfry.config" -}}
{{- $name := include "belfry.fullname" .root }}
{{- $ns := .root.Release.Namespace }}
{{- $hosts := list $name (printf "%s.%s" $name $ns) (printf "%s.%s.svc" $name $ns) (printf "%s.%s.svc.cluster.local" $name $ns) }}
{{- $hosts = concat $hosts .root.Values.hosts }}
{{- if and .root.Values.ingress.enabled .root.Values.ingress.host }}{{ $hosts = append $hosts .root.Values.ingress.host }}{{ end }}
{{- $c := dict "hosts" ($hosts | uniq) }}
{{- if .root.Values.secretKey.name }}{{ $_ := set $c "secrets" (dict "key_file" (printf "/etc/belfry-key/%s" .root.Values.secretKey.key)) }}{{ end }}
{{- if .root.Values.secretFiles }}{{ $_ := set $c "notify" (dict "secrets" "/etc/belfry-secrets") }}{{ end }}
{{- with .root.Values.kubernetesJobs }}{{ if .namespaces }}
{{- $cluster := dict "in_cluster" true "kube_namespaces" .namespaces }}
{{- if .images }}{{ $_ := set $cluster "images" .images }}{{ end }}
{{- if .serviceAccounts }}{{ $_ := set $cluster "service_accounts" .serviceAccounts }}{{ end }}
{{- $_ := set $c "kubernetes" (dict "clusters" (dict "default" $cluster)) }}
{{- end }}{{ end }}
{{- toYaml (mustMergeOverwrite $c (deepCopy .root.Values.config) (deepCopy .config)) }}
{{- end }}

{{- /* Whether a pool speaks with the servers alone: its pods have a port of their own for probes and metrics. */ -}}
{{- define "belfry.remote" -}}
{{- range .Values.workers }}{{ if (mustMergeOverwrite (deepCopy $.Values.workerDefaults) (deepCopy .)).remote }}true{{ end }}{{ end }}
{{- end }}

{{- define "belfry.image" -}}
{{- $i := mustMergeOverwrite (deepCopy .root.Values.image) (deepCopy .own) -}}
{{ $i.repository }}{{ if $i.digest }}@{{ $i.digest }}{{ else }}:{{ default .root.Chart.AppVersion $i.tag }}{{ end }}
{{- end }}

{{- /*
The pod of a role. root: the chart; own: the values of the server or of the pool; component: the
label; args: the command line, without what all have; listens: whether it has the API's port, and
not only that of probes and metrics;
store: whether it has the store and the keys; claim: whether /data comes from a claim.
*/ -}}
{{- define "belfry.pod" -}}
{{- $v := .root.Values }}
{{- $name := include "belfry.fullname" .root }}
{{- $tls := and .listens $v.tls.secretName }}
{{- $xxl := and .store (gt (int $v.xxl.port) 0) }}
metadata:
  annotations:
    checksum/config: {{ include (print .root.Template.BasePath "/config.yaml") .root | sha256sum }}
    {{- with .own.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  labels:
    {{- include "belfry.selector" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
    belfry-metrics: "true"
    {{- with .own.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "belfry.serviceAccount" .root }}
  automountServiceAccountToken: {{ and .store (not (empty $v.kubernetesJobs.namespaces)) }}
  enableServiceLinks: false
  {{- with $v.image.pullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext: {{- toYaml $v.podSecurityContext | nindent 4 }}
  # The drain time and the grace of the commands, and 15 s to write what has ended.
  terminationGracePeriodSeconds: {{ add $v.drainTimeoutSeconds $v.killGraceSeconds (ternary $v.preStopSeconds 0 .listens) 15 }}
  {{- with .own.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .own.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .own.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .own.affinity }}
  affinity: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if $v.topologySpread.enabled }}
  topologySpreadConstraints:
    {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
    - maxSkew: 1
      topologyKey: {{ . }}
      whenUnsatisfiable: {{ $v.topologySpread.whenUnsatisfiable }}
      labelSelector:
        matchLabels:
          {{- include "belfry.selector" $.root | nindent 10 }}
          app.kubernetes.io/component: {{ $.component }}
    {{- end }}
  {{- end }}
  containers:
    - name: belfry
      image: {{ include "belfry.image" . | quote }}
      imagePullPolicy: {{ $v.image.pullPolicy }}
      command: [/usr/bin/belfry]
      args:
        {{- toYaml .args | nindent 8 }}
        - --data=/data/belfry
        - --config=/etc/belfry/{{ .file }}
        - --capacity={{ .own.capacity }}
        - --drain-timeout={{ $v.drainTimeoutSeconds }}s
        - --log-format=json
        {{- range $key, $value := .own.labels }}
        - --label={{ $key }}={{ $value }}
        {{- end }}
        {{- if .listens }}
        - --listen=:8420
        {{- else }}
        - --health-listen=:8423
        {{- end }}
        {{- if $tls }}
        - --tls-cert=/etc/belfry-tls/tls.crt
        - --tls-key=/etc/belfry-tls/tls.key
        {{- else if not $v.tls.secretName }}
        - --plain-http
        {{- end }}
        {{- if $xxl }}
        - --xxl-listen=:{{ $v.xxl.port }}
        - --xxl-token=/etc/belfry-xxl/{{ $v.xxl.token.key }}
        {{- end }}
        {{- range .own.extraArgs }}
        - {{ . | quote }}
        {{- end }}
      env:
        # Commands such as kubectl exec ... belfry node list find the server here.
        - {name: BELFRY_DATA, value: /data/belfry}
        - {name: HOME, value: /data}
        {{- if .store }}
        {{- with $v.store.name }}
        - name: BELFRY_STORE
          valueFrom: {secretKeyRef: {name: {{ . }}, key: {{ $v.store.key }}}}
        {{- end }}
        {{- with $v.history.name }}
        - name: BELFRY_HISTORY
          valueFrom: {secretKeyRef: {name: {{ . }}, key: {{ $v.history.key }}}}
        {{- end }}
        {{- end }}
        {{- if $v.tls.ca.name }}
        # Beside the authorities of the image.
        - {name: SSL_CERT_DIR, value: /etc/belfry-ca}
        {{- end }}
        {{- with .own.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        {{- if .listens }}
        - {name: http, containerPort: 8420, protocol: TCP}
        {{- else }}
        - {name: health, containerPort: 8423, protocol: TCP}
        {{- end }}
        {{- if $xxl }}
        - {name: xxl, containerPort: {{ $v.xxl.port }}, protocol: TCP}
        {{- end }}
      {{- if .listens }}
      # Migrations of the store run before the API answers.
      startupProbe:
        httpGet: {path: /livez, port: http, scheme: {{ ternary "HTTPS" "HTTP" (not (empty $tls)) }}}
        periodSeconds: 5
        failureThreshold: {{ max 1 (div $v.server.startupSeconds 5) }}
      {{- end }}
      livenessProbe:
        httpGet: {path: /livez, port: {{ ternary "http" "health" .listens }}, scheme: {{ ternary "HTTPS" "HTTP" (not (empty $tls)) }}}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      readinessProbe:
        httpGet: {path: /readyz, port: {{ ternary "http" "health" .listens }}, scheme: {{ ternary "HTTPS" "HTTP" (not (empty $tls)) }}}
        periodSeconds: 5
        timeoutSeconds: 5
        failureThreshold: 2
      {{- if and .listens (gt (int $v.preStopSeconds) 0) }}
      lifecycle:
        # Requests stop coming before the server does.
        preStop: {sleep: {seconds: {{ $v.preStopSeconds }}}}
      {{- end }}
      securityContext: {{- toYaml $v.securityContext | nindent 8 }}
      resources: {{- toYaml .own.resources | nindent 8 }}
      volumeMounts:
        - {name: data, mountPath: /data}
        - {name: tmp, mountPath: /tmp}
        - {name: config, mountPath: /etc/belfry, readOnly: true}
        {{- if $tls }}
        - {name: tls, mountPath: /etc/belfry-tls, readOnly: true}
        {{- end }}
        {{- if $xxl }}
        - {name: xxl, mountPath: /etc/belfry-xxl, readOnly: true}
        {{- end }}
        {{- if $v.tls.ca.name }}
        - {name: ca, mountPath: /etc/belfry-ca, readOnly: true}
        {{- end }}
        {{- if and .store $v.secretKey.name }}
        - {name: key, mountPath: /etc/belfry-key, readOnly: true}
        {{- end }}
        {{- if .store }}
        {{- range $namespace, $secret := $v.secretFiles }}
        - {name: secrets-{{ $namespace }}, mountPath: /etc/belfry-secrets/{{ $namespace }}, readOnly: true}
        {{- end }}
        {{- else }}
        - {name: token, mountPath: /etc/belfry-token, readOnly: true}
        {{- end }}
        {{- with .own.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    {{- if not .claim }}
    - name: data
      emptyDir: {{ if .own.dataSize }}{sizeLimit: {{ .own.dataSize }}}{{ else }}{}{{ end }}
    {{- end }}
    - {name: tmp, emptyDir: {}}
    - name: config
      configMap: {name: {{ $name }}}
    {{- if $tls }}
    - name: tls
      secret: {secretName: {{ $v.tls.secretName }}, defaultMode: 0440}
    {{- end }}
    {{- if $xxl }}
    - name: xxl
      secret:
        secretName: {{ required "xxl.token.name is missing: the Secret with the access token of executors" $v.xxl.token.name }}
        defaultMode: 0440
    {{- end }}
    {{- if $v.tls.ca.name }}
    - name: ca
      secret:
        secretName: {{ $v.tls.ca.name }}
        items: [{key: {{ $v.tls.ca.key }}, path: ca.crt}]
    {{- end }}
    {{- if and .store $v.secretKey.name }}
    - name: key
      secret:
        secretName: {{ $v.secretKey.name }}
        items: [{key: {{ $v.secretKey.key }}, path: {{ $v.secretKey.key }}}]
        defaultMode: 0440
    {{- end }}
    {{- if .store }}
    {{- range $namespace, $secret := $v.secretFiles }}
    - name: secrets-{{ $namespace }}
      secret: {secretName: {{ $secret }}, defaultMode: 0440}
    {{- end }}
    {{- else }}
    - name: token
      secret:
        secretName: {{ .own.token.name }}
        items: [{key: {{ .own.token.key }}, path: token}]
        defaultMode: 0440
    {{- end }}
    {{- with .own.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
