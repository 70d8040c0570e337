{{/* The pod of an instance: HAProxy, and its Dataplane API as a sidecar. The API comes
before HAProxy and goes after it, and a crash of it takes nothing with it. Both are started
by a program of ours, which the first container puts into a folder: images need no shell. */}}

{{- define "hapsnap.haproxyEnv" -}}
- {name: CONFIG_DIR, value: /etc/haproxy}
- {name: FILES_DIR, value: /etc/hapsnap/files}
- {name: PROGRAM_DIR, value: /run/hapsnap}
- {name: API_DIR, value: /run/dataplaneapi}
- {name: CREDENTIALS_DIR, value: /etc/hapsnap/credentials}
- {name: MASTER_SOCKET, value: /run/haproxy/master.sock}
- {name: HAPROXY, value: {{ .Values.haproxy.binaries.haproxy }}}
- {name: DATAPLANEAPI, value: {{ .Values.haproxy.binaries.dataplaneapi }}}
- {name: API_PORT, value: {{ int .Values.haproxy.dataplane.port | quote }}}
{{- if .Values.haproxy.dataplane.tls.enabled }}
- {name: TLS_DIR, value: /etc/hapsnap/dataplane-tls}
{{- end }}
- {name: DRAIN_PROPAGATION_SECONDS, value: {{ int .Values.haproxy.drain.propagationSeconds | quote }}}
- {name: DRAIN_SECONDS, value: {{ int .Values.haproxy.drain.seconds | quote }}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
- name: HOST_IP
  valueFrom: {fieldRef: {fieldPath: status.hostIP}}
{{- with .Values.haproxy.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "hapsnap.haproxyMounts" -}}
- {name: config, mountPath: /etc/haproxy}
- {name: certificates, mountPath: /etc/haproxy/ssl}
- {name: run, mountPath: /run/haproxy}
- {name: tmp, mountPath: /tmp}
- {name: files, mountPath: /etc/hapsnap/files, readOnly: true}
{{- with .Values.haproxy.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "hapsnap.haproxyPod" -}}
{{- $h := .Values.haproxy -}}
{{- $self := dict "root" . "component" "haproxy" "values" $h -}}
{{- $image := include "hapsnap.image" (dict "root" . "image" $h.image "tag" .Values.haproxyLine) -}}
{{- $ports := include "hapsnap.trafficPorts" . | fromYamlArray -}}
{{- $status := include "hapsnap.statusPort" . -}}
{{- $program := include "hapsnap.image" (dict "root" . "image" $h.bootstrap.image "tag" .Chart.AppVersion) -}}
{{- $sysctls := list -}}
{{- if not $h.hostNetwork -}}
{{- range $ports -}}
{{- if lt (int .port) 1024 -}}
{{- $sysctls = list (dict "name" "net.ipv4.ip_unprivileged_port_start" "value" "0") -}}
{{- end -}}
{{- end -}}
{{- end -}}
metadata:
  labels:
    {{- include "hapsnap.podLabels" $self | nindent 4 }}
  annotations:
    kubectl.kubernetes.io/default-container: haproxy
    {{- with $h.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "hapsnap.serviceAccount" $self }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  {{- include "hapsnap.pullSecrets" . | nindent 2 }}
  {{- include "hapsnap.podSecurity" (dict "user" (int $h.runAsUser) "sysctls" $sysctls) | nindent 2 }}
  {{- if $h.hostNetwork }}
  hostNetwork: true
  {{- end }}
  dnsPolicy: {{ default (ternary "ClusterFirstWithHostNet" "ClusterFirst" $h.hostNetwork) $h.dnsPolicy }}
  terminationGracePeriodSeconds: {{ include "hapsnap.gracePeriod" . }}
  {{- include "hapsnap.placement" $self | nindent 2 }}
  initContainers:
  - name: prepare
    image: {{ $program }}
    imagePullPolicy: {{ $h.bootstrap.image.pullPolicy }}
    terminationMessagePolicy: FallbackToLogsOnError
    command: [/usr/local/bin/bootstrap, prepare]
    env:
    {{- include "hapsnap.haproxyEnv" . | nindent 4 }}
    resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {memory: 64Mi}}
    securityContext:
      {{- include "hapsnap.containerSecurity" . | nindent 6 }}
    volumeMounts:
    {{- include "hapsnap.haproxyMounts" . | nindent 4 }}
    - {name: program, mountPath: /run/hapsnap}
  {{- with .Values.waf }}
  {{- if .enabled }}
  # A sidecar that comes before HAProxy and goes after it, so that requests are inspected while HAProxy drains.
  - name: waf
    image: {{ include "hapsnap.image" (dict "root" $ "image" .image "tag" $.Chart.AppVersion) }}
    imagePullPolicy: {{ .image.pullPolicy }}
    terminationMessagePolicy: FallbackToLogsOnError
    restartPolicy: Always
    args:
    - run
    - --listen=unix@/run/hapsnap-waf/spop.sock
    - --metrics-address=:{{ int .port }}
    - --audit={{ .audit }}
    - --log-format=json
    {{- with .extraArgs }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    ports:
    - {name: waf-metrics, containerPort: {{ int .port }}}
    startupProbe:
      httpGet: {path: /readyz, port: waf-metrics}
      periodSeconds: 1
      failureThreshold: 120
    livenessProbe:
      httpGet: {path: /healthz, port: waf-metrics}
      periodSeconds: 10
      failureThreshold: 6
      timeoutSeconds: 5
    resources:
      {{- toYaml .resources | nindent 6 }}
    securityContext:
      {{- include "hapsnap.containerSecurity" $ | nindent 6 }}
    volumeMounts:
    - {name: waf, mountPath: /run/hapsnap-waf}
  {{- end }}
  {{- end }}
  # A sidecar. It has no startup probe: HAProxy's container would wait for it, and it waits
  # for HAProxy. It has no readiness probe: without it HAProxy still serves. While it waits, for
  # HAProxy or for its password, bootstrap answers on the port.
  - name: dataplaneapi
    image: {{ $image }}
    imagePullPolicy: {{ $h.image.pullPolicy }}
    terminationMessagePolicy: FallbackToLogsOnError
    restartPolicy: Always
    command: [/run/hapsnap/bootstrap, dataplaneapi]
    env:
    {{- include "hapsnap.haproxyEnv" . | nindent 4 }}
    ports:
    - {name: dataplane, containerPort: {{ int $h.dataplane.port }}}
    livenessProbe:
      tcpSocket: {port: dataplane}
      initialDelaySeconds: 60
      periodSeconds: 10
      failureThreshold: 6
      timeoutSeconds: 5
    resources:
      {{- toYaml $h.dataplane.resources | nindent 6 }}
    securityContext:
      {{- include "hapsnap.containerSecurity" . | nindent 6 }}
    volumeMounts:
    {{- include "hapsnap.haproxyMounts" . | nindent 4 }}
    - {name: program, mountPath: /run/hapsnap, readOnly: true}
    - {name: api, mountPath: /run/dataplaneapi}
    - {name: credentials, mountPath: /etc/hapsnap/credentials, readOnly: true}
    {{- if $h.dataplane.tls.enabled }}
    - {name: dataplane-tls, mountPath: /etc/hapsnap/dataplane-tls, readOnly: true}
    {{- end }}
  containers:
  - name: haproxy
    image: {{ $image }}
    imagePullPolicy: {{ $h.image.pullPolicy }}
    terminationMessagePolicy: FallbackToLogsOnError
    # It drains HAProxy when the kubelet ends the container. A preStop that sleeps could not
    # have /ready fail, and the signal that follows it would close the port of metrics too.
    command: [/run/hapsnap/bootstrap, haproxy]
    env:
    {{- include "hapsnap.haproxyEnv" . | nindent 4 }}
    ports:
    {{- range $ports }}
    - name: {{ .name }}
      containerPort: {{ .port }}
      protocol: {{ .protocol }}
      {{- $host := "" }}
      {{- if eq .name "http" }}{{ $host = $h.hostPorts.http }}{{ end }}
      {{- if has .name (list "https" "quic") }}{{ $host = $h.hostPorts.https }}{{ end }}
      {{- if and $host (not $h.hostNetwork) }}
      hostPort: {{ int $host }}
      {{- end }}
    {{- end }}
    - name: status
      containerPort: {{ $status }}
      protocol: TCP
    startupProbe:
      httpGet: {path: /healthz, port: status}
      periodSeconds: 1
      failureThreshold: 120
    livenessProbe:
      httpGet: {path: /healthz, port: status}
      periodSeconds: 10
      failureThreshold: 6
      timeoutSeconds: 5
    readinessProbe:
      httpGet: {path: /ready, port: status}
      periodSeconds: 2
      failureThreshold: 3
      timeoutSeconds: 5
    resources:
      {{- toYaml $h.resources | nindent 6 }}
    securityContext:
      {{- include "hapsnap.containerSecurity" . | nindent 6 }}
    volumeMounts:
    {{- include "hapsnap.haproxyMounts" . | nindent 4 }}
    - {name: program, mountPath: /run/hapsnap, readOnly: true}
    {{- if .Values.waf.enabled }}
    - {name: waf, mountPath: /run/hapsnap-waf}
    {{- end }}
  volumes:
  {{- if .Values.waf.enabled }}
  - name: waf
    emptyDir: {medium: Memory, sizeLimit: 1Mi}
  {{- end }}
  - name: config
    emptyDir: {sizeLimit: {{ $h.volumes.config }}}
  # Private keys are on no disk.
  - name: certificates
    emptyDir: {medium: Memory, sizeLimit: {{ $h.volumes.certificates }}}
  - name: program
    emptyDir: {sizeLimit: 32Mi}
  - name: api
    emptyDir: {medium: Memory, sizeLimit: 1Mi}
  - name: run
    emptyDir: {medium: Memory, sizeLimit: 1Mi}
  - name: tmp
    emptyDir: {sizeLimit: {{ $h.volumes.temporary }}}
  - name: files
    configMap: {name: {{ include "hapsnap.fullname" . }}-haproxy}
  - name: credentials
    secret:
      secretName: {{ include "hapsnap.dataplaneSecret" . }}
      defaultMode: 0440
      items:
      - {key: {{ $h.dataplane.usernameKey }}, path: username}
      - {key: {{ $h.dataplane.passwordKey }}, path: password}
      {{- if include "hapsnap.makesPassword" . }}
      # The next ones, while the password is renewed.
      - {key: next-{{ $h.dataplane.usernameKey }}, path: next-username}
      - {key: next-{{ $h.dataplane.passwordKey }}, path: next-password}
      # The Dataplane API waits until the pusher has made them.
      optional: true
      {{- end }}
  {{- if $h.dataplane.tls.enabled }}
  - name: dataplane-tls
    secret:
      secretName: {{ include "hapsnap.dataplaneTLSSecret" . }}
      defaultMode: 0440
      {{- if include "hapsnap.makesDataplaneTLS" . }}
      items: [{key: tls.crt, path: tls.crt}, {key: tls.key, path: tls.key}]
      optional: true
      {{- end }}
  {{- end }}
  {{- with $h.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}
