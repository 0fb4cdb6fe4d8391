{{/* Names are fixed: a namespace holds one control plane. What belongs to the whole cluster carries the namespace. */}}
{{- define "controlplane.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "controlplane.endpoints" -}}
{{- if .Values.joblet.endpoints -}}
{{ .Values.joblet.endpoints }}
{{- else -}}
{{- $names := list -}}
{{- range $index := until (int .Values.replica.replicas) -}}
{{- $names = append $names (printf "controlplane-%d.controlplane-replicas.%s.svc:%d" $index $.Release.Namespace (int $.Values.replica.ports.grpc)) -}}
{{- end -}}
{{ join "," $names }}
{{- end -}}
{{- end -}}

{{- define "controlplane.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "controlplane.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "controlplane.dns" -}}
- ports:
    - port: 53
      protocol: UDP
    - port: 53
      protocol: TCP
{{- end -}}
