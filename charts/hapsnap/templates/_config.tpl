{{/* What follows from the values. */}}

{{- define "hapsnap.class" -}}{{ .Values.ingressClass.name }}{{- end -}}

{{/* Two releases need two controllers: a compiler takes every class of its controller. */}}
{{- define "hapsnap.controller" -}}
{{- if .Values.ingressClass.controller }}{{ .Values.ingressClass.controller }}
{{- else if eq .Values.ingressClass.name "hapsnap" }}hapsnap.dev/ingress-controller
{{- else }}hapsnap.dev/{{ .Values.ingressClass.name }}{{ end -}}
{{- end -}}

{{- define "hapsnap.gatewayClass" -}}{{ default (include "hapsnap.class" .) .Values.gatewayAPI.class.name }}{{- end -}}

{{- define "hapsnap.gatewayController" -}}
{{- if .Values.gatewayAPI.class.controllerName }}{{ .Values.gatewayAPI.class.controllerName }}
{{- else if eq (include "hapsnap.gatewayClass" .) "hapsnap" }}hapsnap.dev/gateway-controller
{{- else }}hapsnap.dev/{{ include "hapsnap.gatewayClass" . }}{{ end -}}
{{- end -}}

{{/* haproxyLine, if it is that of every HAProxy that runs or checks configurations: the tags of
the images name it, and there are no instances but the chart's own. */}}
{{- define "hapsnap.knownLine" -}}
{{- $v := .Values -}}
{{- $named := printf "(^|[^0-9.])%s([^0-9]|$)" (regexQuoteMeta $v.haproxyLine) -}}
{{- if and $v.haproxy.enabled (not $v.fleet.pods) (not $v.fleet.instances) -}}
{{- if and (regexMatch $named (default $v.haproxyLine $v.haproxy.image.tag)) (regexMatch $named (default $v.haproxyLine $v.compiler.image.tag)) -}}
{{ $v.haproxyLine }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* spec of the CompilerConfig, as YAML. */}}
{{- define "hapsnap.config" -}}
{{- $given := default dict .Values.compiler.config -}}
{{- $fleet := default "" .Values.gatewayAPI.fleet -}}
{{- $own := dict "ingressClass" (include "hapsnap.class" .) "controllerClass" (include "hapsnap.controller" .) "http" (dict "port" (ternary 0 80 (ne $fleet ""))) "https" (dict "port" (ternary 0 443 (ne $fleet ""))) "status" (dict "port" 8404) -}}
{{- if .Values.haproxy.enabled -}}
{{- $_ := set $own "hardStopAfter" (printf "%ds" (int .Values.haproxy.drain.seconds)) -}}
{{- if and .Values.haproxy.service.enabled (not (hasKey $given "ingressStatus")) -}}
{{- $_ := set $own "ingressStatus" (dict "service" (printf "%s/%s-haproxy" .Release.Namespace (include "hapsnap.fullname" .))) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.waf.enabled .Values.haproxy.enabled -}}
{{- $_ := set $own "waf" (dict "socket" "/run/hapsnap-waf/spop.sock") -}}
{{- end -}}
{{- with include "hapsnap.knownLine" . -}}
{{- $_ := set $own "haproxyVersion" . -}}
{{- end -}}
{{- if .Values.gatewayAPI.enabled -}}
{{- $_ := set $own "gatewayAPI" (dict "enabled" true "controllerName" (include "hapsnap.gatewayController" .)) -}}
{{- with $fleet -}}
{{- $_ := set $own.gatewayAPI "fleet" (printf "%s/%s" $.Release.Namespace .) -}}
{{- end -}}
{{- if .Values.gatewayAPI.services.enabled -}}
{{- $_ := set $own.gatewayAPI "services" .Values.gatewayAPI.services -}}
{{- end -}}
{{- end -}}
{{- if .Values.compiler.countriesVolume -}}
{{- $_ := set $own "countries" (dict "files" (list "/etc/hapsnap/countries")) -}}
{{- end -}}
{{- if ne .Values.rbac.scope "cluster" -}}
{{- $_ := set $own "namespaces" (.Values.rbac.namespaces | uniq | sortAlpha) -}}
{{- if $own.ingressStatus -}}
{{- $_ := set $own "namespaces" (append .Values.rbac.namespaces .Release.Namespace | uniq | sortAlpha) -}}
{{- end -}}
{{- end -}}
{{- mergeOverwrite $own (deepCopy $given) | toYaml -}}
{{- end -}}

{{/* Ports that HAProxy opens for traffic: name, port and protocol of each, as YAML. */}}
{{- define "hapsnap.trafficPorts" -}}
{{- $config := include "hapsnap.config" . | fromYaml -}}
{{- with int $config.http.port }}
- {name: http, port: {{ . }}, protocol: TCP}
{{- end }}
{{- with int $config.https.port }}
- {name: https, port: {{ . }}, protocol: TCP}
{{- if dig "http3" "enabled" false $config.https }}
- {name: quic, port: {{ . }}, protocol: UDP}
{{- end }}
{{- end }}
{{- $seen := dict }}
{{- if .Values.gatewayAPI.enabled }}
{{- range .Values.gatewayAPI.ports }}
- {name: gateway-{{ int . }}, port: {{ int . }}, protocol: TCP}
{{- $_ := set $seen (int . | toString) true }}
{{- end }}
{{- end }}
{{- range $config.tcpServices }}
{{- $port := int .port | toString }}
{{- if not (hasKey $seen $port) }}
- {name: tcp-{{ $port }}, port: {{ $port }}, protocol: TCP}
{{- end }}
{{- $_ := set $seen $port true }}
{{- end }}
{{- end -}}

{{/* Ports of the Service for traffic, as YAML. */}}
{{- define "hapsnap.servicePorts" -}}
{{- $s := .Values.haproxy.service -}}
{{- $nodePorts := eq $s.type "NodePort" }}
{{- range include "hapsnap.trafficPorts" . | fromYamlArray }}
{{- $set := dict "enabled" true "port" .port }}
{{- if eq .name "http" }}{{ $set = $s.http }}{{ end }}
{{- if has .name (list "https" "quic") }}{{ $set = $s.https }}{{ end }}
{{- if $set.enabled }}
- name: {{ .name }}
  port: {{ int $set.port }}
  targetPort: {{ .name }}
  protocol: {{ .protocol }}
  {{- if and $nodePorts $set.nodePort }}
  nodePort: {{ int $set.nodePort }}
  {{- end }}
{{- end }}
{{- end }}
{{- if $s.stats.enabled }}
- name: stats
  port: {{ int $s.stats.port }}
  targetPort: status
  protocol: TCP
  {{- if and $nodePorts $s.stats.nodePort }}
  nodePort: {{ int $s.stats.nodePort }}
  {{- end }}
{{- end }}
{{- with $s.extraPorts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "hapsnap.statusPort" -}}
{{- $config := include "hapsnap.config" . | fromYaml -}}
{{- int $config.status.port -}}
{{- end -}}

{{/* The first configuration listens for probes where later ones do: a line for each address. */}}
{{- define "hapsnap.statusBinds" -}}
{{- $config := include "hapsnap.config" . | fromYaml -}}
{{- $port := int $config.status.port -}}
{{- range default (dig "bind" "addresses" (list "*") $config) $config.status.addresses }}
{{- if hasPrefix "$" . }}
bind "{{ . }}:{{ $port }}"
{{- else if eq . "::" }}
bind *:{{ $port }}
bind [::]:{{ $port }} v6only
{{- else if contains ":" . }}
bind [{{ . }}]:{{ $port }}
{{- else }}
bind {{ . }}:{{ $port }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Namespaces of tenants that roles are made in; none with scope: cluster. */}}
{{- define "hapsnap.tenants" -}}
{{- $config := include "hapsnap.config" . | fromYaml -}}
{{- if ne .Values.rbac.scope "cluster" }}{{ join " " $config.namespaces }}{{ end -}}
{{- end -}}

{{- define "hapsnap.inCluster" -}}{{ if not .Values.store.url }}true{{ end }}{{- end -}}

{{- define "hapsnap.storeName" -}}{{ default (include "hapsnap.fullname" .) .Values.store.name }}{{- end -}}

{{- define "hapsnap.storeNamespace" -}}
{{- default (printf "%s-store" (include "hapsnap.clusterName" .)) .Values.store.namespace -}}
{{- end -}}

{{- define "hapsnap.store" -}}
{{- if .Values.store.url }}{{ .Values.store.url }}{{ else }}configmap:{{ include "hapsnap.storeNamespace" . }}/{{ include "hapsnap.storeName" . }}{{ end -}}
{{- end -}}

{{- define "hapsnap.state" -}}secret:{{ .Release.Namespace }}/{{ include "hapsnap.fullname" . }}-pusher{{- end -}}

{{/* The ConfigMap with the status of the fleet. */}}
{{- define "hapsnap.status" -}}
{{- if eq "true" (include "hapsnap.inCluster" .) }}{{ include "hapsnap.store" . }}-status{{ else }}configmap:{{ .Release.Namespace }}/{{ include "hapsnap.fullname" . }}-status{{ end -}}
{{- end -}}

{{/* How long a pod of HAProxy may take to end. */}}
{{- define "hapsnap.gracePeriod" -}}
{{- add (int .Values.haproxy.drain.propagationSeconds) (int .Values.haproxy.drain.seconds) 5 -}}
{{- end -}}

{{- define "hapsnap.dataplaneSecret" -}}
{{- default (printf "%s-dataplane" (include "hapsnap.fullname" .)) .Values.haproxy.dataplane.existingSecret -}}
{{- end -}}

{{/* The end of the name of a Secret with a certificate. Those of cert-manager are not the
release's: with one name a release could not go from one to the other. */}}
{{- define "hapsnap.madeBy" -}}{{ ternary "tls" "certificate" .Values.certManager.enabled }}{{- end -}}

{{- define "hapsnap.dataplaneTLSSecret" -}}
{{- $tls := .Values.haproxy.dataplane.tls -}}
{{- if $tls.enabled }}{{ default (printf "%s-dataplane-%s" (include "hapsnap.fullname" .) (include "hapsnap.madeBy" .)) $tls.existingSecret }}{{ end -}}
{{- end -}}

{{- define "hapsnap.webhookSecret" -}}
{{- default (printf "%s-webhook-%s" (include "hapsnap.fullname" .) (include "hapsnap.madeBy" .)) .Values.compiler.webhook.existingSecret -}}
{{- end -}}

{{/* Whether the pusher knows the pods of this chart, and makes what nobody else does. */}}
{{- define "hapsnap.pusherMakes" -}}
{{- if and .Values.haproxy.enabled .Values.pusher.enabled (not .Values.fleet.pods) }}true{{ end -}}
{{- end -}}

{{- define "hapsnap.makesPassword" -}}
{{- if and (include "hapsnap.pusherMakes" .) (not .Values.haproxy.dataplane.existingSecret) }}true{{ end -}}
{{- end -}}

{{- define "hapsnap.makesDataplaneTLS" -}}
{{- $tls := .Values.haproxy.dataplane.tls -}}
{{- if and (include "hapsnap.pusherMakes" .) $tls.enabled (not $tls.existingSecret) (not $tls.caSecret) (not .Values.certManager.enabled) }}true{{ end -}}
{{- end -}}

{{/* The Secrets that the pusher fills, as a YAML list. */}}
{{- define "hapsnap.pusherSecrets" -}}
{{- if include "hapsnap.makesPassword" . }}
- {{ include "hapsnap.dataplaneSecret" . }}
{{- end }}
{{- if include "hapsnap.makesDataplaneTLS" . }}
- {{ include "hapsnap.dataplaneTLSSecret" . }}
{{- end }}
{{- end -}}

{{- define "hapsnap.makesWebhookTLS" -}}
{{- $w := .Values.compiler.webhook -}}
{{- if and .Values.compiler.enabled $w.enabled (not $w.existingSecret) (not $w.caBundle) (not .Values.certManager.enabled) }}true{{ end -}}
{{- end -}}

{{/* The Fleet's spec. */}}
{{- define "hapsnap.fleet" -}}
{{- $fleet := dict -}}
{{- with .Values.fleet.rollout }}{{ $_ := set $fleet "rollout" . }}{{ end -}}
{{- with .Values.fleet.instances }}{{ $_ := set $fleet "instances" . }}{{ end -}}
{{- if .Values.fleet.pods -}}
{{- $_ := set $fleet "pods" .Values.fleet.pods -}}
{{- else if .Values.haproxy.enabled -}}
{{- $d := .Values.haproxy.dataplane -}}
{{- $pods := dict "namespace" .Release.Namespace "selector" (dict "matchLabels" (include "hapsnap.selector" (dict "root" . "component" "haproxy") | fromYaml)) "port" "dataplane" "scheme" "http" "credentialsSecret" (dict "name" (include "hapsnap.dataplaneSecret" .) "usernameKey" $d.usernameKey "passwordKey" $d.passwordKey) -}}
{{- if $d.tls.enabled -}}
{{- $_ := set $pods "scheme" "https" -}}
{{- $_ := set $pods "tls" (dict "caSecret" (default (include "hapsnap.dataplaneTLSSecret" .) $d.tls.caSecret) "serverName" (printf "%s-haproxy.%s.svc" (include "hapsnap.fullname" .) .Release.Namespace)) -}}
{{- end -}}
{{- $_ := set $fleet "pods" $pods -}}
{{- end -}}
{{- toYaml $fleet -}}
{{- end -}}

{{/* Flags of a store in git, and of signatures. Arguments: root, role (compiler or pusher). */}}
{{- define "hapsnap.storeArgs" -}}
{{- $store := .root.Values.store -}}
{{- $git := $store.git -}}
{{- if $store.url }}
- --cache-dir=/var/cache/hapsnap
{{- with $git.tokenKey }}
- --git-token-file=/etc/hapsnap/git/{{ . }}
{{- end }}
{{- with $git.sshKeyKey }}
- --git-ssh-key=/etc/hapsnap/git/{{ . }}
{{- end }}
{{- with $git.knownHostsKey }}
- --git-known-hosts=/etc/hapsnap/git/{{ . }}
{{- end }}
{{- with $git.caKey }}
- --git-ca-file=/etc/hapsnap/git/{{ . }}
{{- end }}
{{- end }}
{{- if include "hapsnap.signingSecret" . }}
- --signing-key=/etc/hapsnap/signing/{{ $store.signing.key }}
{{- with $store.signing.passphraseKey }}
- --signing-passphrase-file=/etc/hapsnap/signing/{{ . }}
{{- end }}
{{- end }}
{{- if $store.signing.allowedSignersConfigMap }}
- --allowed-signers=/etc/hapsnap/signers/{{ $store.signing.allowedSignersKey }}
{{- end }}
{{- end -}}

{{- define "hapsnap.signingSecret" -}}{{ default "" (index .root.Values.store.signing (printf "%sSecret" .role)) }}{{- end -}}

{{- define "hapsnap.gitSecret" -}}
{{- $git := .root.Values.store.git -}}
{{- if .root.Values.store.url }}{{ if eq .role "pusher" }}{{ default $git.existingSecret $git.pusherSecret }}{{ else }}{{ $git.existingSecret }}{{ end }}{{ end -}}
{{- end -}}

{{- define "hapsnap.storeMounts" -}}
- {name: tmp, mountPath: /tmp}
{{- if .root.Values.store.url }}
- {name: cache, mountPath: /var/cache/hapsnap}
{{- end }}
{{- if include "hapsnap.gitSecret" . }}
- {name: git, mountPath: /etc/hapsnap/git, readOnly: true}
{{- end }}
{{- if include "hapsnap.signingSecret" . }}
- {name: signing, mountPath: /etc/hapsnap/signing, readOnly: true}
{{- end }}
{{- if .root.Values.store.signing.allowedSignersConfigMap }}
- {name: signers, mountPath: /etc/hapsnap/signers, readOnly: true}
{{- end }}
{{- end -}}

{{- define "hapsnap.storeVolumes" -}}
- name: tmp
  emptyDir: {sizeLimit: 1Gi}
{{- if .root.Values.store.url }}
- name: cache
  emptyDir: {sizeLimit: 2Gi}
{{- end }}
{{- with include "hapsnap.gitSecret" . }}
- name: git
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- with include "hapsnap.signingSecret" . }}
- name: signing
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- with .root.Values.store.signing.allowedSignersConfigMap }}
- name: signers
  configMap: {name: {{ . }}}
{{- end }}
{{- end -}}

{{- define "hapsnap.podSecurity" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ .user }}
  runAsGroup: {{ .user }}
  fsGroup: {{ .user }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with .sysctls }}
  sysctls:
{{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "hapsnap.budget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
{{- include "hapsnap.metadata" . | nindent 2 }}
spec:
  {{- with .values.podDisruptionBudget }}
  {{- if not (kindIs "invalid" .minAvailable) }}
  minAvailable: {{ .minAvailable }}
  {{- else }}
  maxUnavailable: {{ .maxUnavailable }}
  {{- end }}
  {{- end }}
  # Pods that are not ready hold up no drain of a node.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
    {{- include "hapsnap.selector" . | nindent 6 }}
{{- end -}}

{{- define "hapsnap.account" -}}
{{- $account := (default (index .root.Values .component) .values).serviceAccount -}}
{{- if $account.create }}
apiVersion: v1
kind: ServiceAccount
metadata:
{{- include "hapsnap.metadata" (merge (dict "name" (include "hapsnap.serviceAccount" .) "annotations" $account.annotations) .) | nindent 2 }}
automountServiceAccountToken: {{ $account.automount }}
{{- end }}
{{- end -}}
