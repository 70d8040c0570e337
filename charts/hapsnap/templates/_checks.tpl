{{/* What values cannot be, with what to do. The schema has the rest. */}}
{{- define "hapsnap.checks" -}}
{{- $v := .Values -}}
{{- if and $v.pusher.enabled (not $v.haproxy.enabled) (not $v.fleet.instances) (not $v.fleet.pods) -}}
{{- fail "the pusher has no instances: set haproxy.enabled, list them in fleet.instances or fleet.pods, or set pusher.enabled to false" -}}
{{- end -}}
{{- if $v.haproxy.enabled -}}
{{- if not $v.haproxy.dataplane.existingSecret -}}
{{- fail (printf "haproxy.dataplane.existingSecret is missing, the Secret with the user of the Dataplane API. Make one, as with:\n\n  kubectl create secret generic dataplane --namespace %s --from-literal=username=hapsnap --from-literal=password=\"$(openssl rand -hex 32)\"\n\nand set haproxy.dataplane.existingSecret=dataplane" .Release.Namespace) -}}
{{- end -}}
{{- if and $v.haproxy.dataplane.tls.enabled (not (include "hapsnap.dataplaneTLSSecret" .)) -}}
{{- fail (printf "the Dataplane API has no certificate: set certManager.enabled, or haproxy.dataplane.tls.existingSecret to a Secret with tls.crt, tls.key and ca.crt for %s-haproxy.%s.svc; or set haproxy.dataplane.tls.enabled to false, if others cannot listen on the network of the pods" (include "hapsnap.fullname" .) .Release.Namespace) -}}
{{- end -}}
{{- $low := false -}}
{{- range include "hapsnap.trafficPorts" . | fromYamlArray }}{{ if lt (int .port) 1024 }}{{ $low = true }}{{ end }}{{ end -}}
{{- if and $v.haproxy.hostNetwork $low (not $v.haproxy.lowPortsOnNodes) -}}
{{- fail "haproxy.hostNetwork: a pod in the network of its node may not open ports below 1024. Set compiler.config.http.port and compiler.config.https.port to others, or net.ipv4.ip_unprivileged_port_start=0 on the nodes and haproxy.lowPortsOnNodes" -}}
{{- end -}}
{{- if not (include "hapsnap.statusPort" . | int) -}}
{{- fail "compiler.config.status.port is 0: the probes of HAProxy need it" -}}
{{- end -}}
{{- if and $v.haproxy.autoscaling.enabled (eq $v.haproxy.kind "DaemonSet") -}}
{{- fail "haproxy.autoscaling: a DaemonSet has a pod on each node and cannot be scaled; use kind: Deployment" -}}
{{- end -}}
{{- end -}}
{{- if and $v.compiler.webhook.enabled (not (include "hapsnap.webhookSecret" .)) -}}
{{- fail (printf "compiler.webhook has no certificate: set certManager.enabled, or compiler.webhook.existingSecret to a Secret with tls.crt and tls.key for %s-compiler.%s.svc, and compiler.webhook.caBundle to its authority in base64" (include "hapsnap.fullname" .) .Release.Namespace) -}}
{{- end -}}
{{- if and $v.compiler.webhook.enabled $v.compiler.webhook.existingSecret (not $v.compiler.webhook.caBundle) -}}
{{- fail "compiler.webhook.caBundle is missing: the authority that signed the certificate in compiler.webhook.existingSecret, in base64" -}}
{{- end -}}
{{- if and (ne $v.rbac.scope "cluster") (not $v.rbac.namespaces) (not $v.compiler.config.namespaces) -}}
{{- fail (printf "rbac.scope is %s and rbac.namespaces is empty: name the namespaces that are read" $v.rbac.scope) -}}
{{- end -}}
{{- with $v.store.signing -}}
{{- if and .allowedSignersConfigMap (or (and $v.compiler.enabled (not .compilerSecret)) (and $v.pusher.enabled (not .pusherSecret))) -}}
{{- fail "store.signing: with allowedSignersConfigMap both programs need a key: set compilerSecret and pusherSecret" -}}
{{- end -}}
{{- end -}}
{{- if and $v.store.url (hasPrefix "configmap:" $v.store.url) -}}
{{- fail "store.url is for git: name ConfigMaps with store.namespace and store.name, so that the roles are made for them" -}}
{{- end -}}
{{- end -}}
