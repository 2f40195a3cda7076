{{/* An image: a digest takes the place of the tag. */}}
{{- define "outrider.image" -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag }}{{ end }}
{{- end }}

{{/* The image for a pool with so many GPUs: root, gpus. */}}
{{- define "outrider.poolImage" -}}
{{ include "outrider.image" (ternary .root.Values.images.cuda .root.Values.images.cpu (gt (int .gpus) 0)) }}
{{- end }}

{{/* The text of the Serve config. */}}
{{- define "outrider.serveConfig" -}}
{{- .Values.serveConfig | default (.Files.Get "files/serve.yaml") }}
{{- end }}

{{/* A pod that is told to go ends its answers first: at least preStop (5) + drain + 15. Arguments: pool; name
     or values, where it stands in the values. */}}
{{- define "outrider.checkTimes" -}}
{{- $least := add 20 .pool.drainSeconds }}
{{- if lt (int .pool.terminationGracePeriodSeconds) (int $least) }}
{{- fail (printf "%s.terminationGracePeriodSeconds: must be at least preStop (5) + drainSeconds + 15 = %d" (.values | default .name) $least) }}
{{- end }}
{{- if gt (int .pool.minReplicas) (int .pool.maxReplicas) }}
{{- fail (printf "%s.minReplicas: at most maxReplicas = %d" (.values | default .name) (int .pool.maxReplicas)) }}
{{- end }}
{{- end }}

{{/* The claim of the models' volume. */}}
{{- define "outrider.modelsClaim" -}}
{{- .Values.models.existingClaim | default "outrider-models" }}
{{- end }}

{{/* Labels of the pods of one component; the argument is its name. */}}
{{- define "outrider.labels" -}}
app.kubernetes.io/part-of: outrider
app.kubernetes.io/component: {{ . }}
{{- end }}

{{- define "outrider.containerSecurity" -}}
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
readOnlyRootFilesystem: true
runAsNonRoot: true
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* Security of a pod; the argument is the user's number. */}}
{{- define "outrider.podSecurity" -}}
fsGroup: {{ . }}
fsGroupChangePolicy: OnRootMismatch
runAsGroup: {{ . }}
runAsNonRoot: true
runAsUser: {{ . }}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "outrider.pullSecrets" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Requests and limits of a container: cpu, cpuLimit, memory, and gpus where the device plugin gives them. */}}
{{- define "outrider.resources" -}}
requests:
  cpu: {{ .cpu | quote }}
  memory: {{ .memory | quote }}
  {{- if .gpus }}
  nvidia.com/gpu: {{ .gpus | toString | quote }}
  {{- end }}
limits:
  {{- if .cpuLimit }}
  cpu: {{ .cpuLimit | quote }}
  {{- end }}
  memory: {{ .memory | quote }}
  {{- if .gpus }}
  nvidia.com/gpu: {{ .gpus | toString | quote }}
  {{- end }}
{{- end }}

{{/* Variables that the head and all workers have; the argument is the drain in seconds. */}}
{{- define "outrider.env" -}}
- {name: RAY_USAGE_STATS_ENABLED, value: "0"}
# A Serve proxy that died is replaced after three checks; Ray's own period would make that 28 s.
- {name: RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S, value: "1"}
- {name: RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S, value: "5"}
- {name: RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S, value: {{ . | toString | quote }}}
{{- end }}

{{- define "outrider.scratchVolumes" -}}
- {name: tmp, emptyDir: {sizeLimit: 20Gi}}
- {name: home, emptyDir: {sizeLimit: 5Gi}}
- {name: shared-mem, emptyDir: {medium: Memory, sizeLimit: {{ . | quote }}}}
{{- end }}

{{- define "outrider.scratchMounts" -}}
- {name: tmp, mountPath: /tmp}
- {name: home, mountPath: /home/outrider}
- {name: shared-mem, mountPath: /dev/shm}
{{- end }}
