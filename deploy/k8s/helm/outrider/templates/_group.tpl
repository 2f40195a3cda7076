{{/* One worker group. Arguments: root; name of the group; role; pool, its values; claims, the template of its GPU claims
     or ""; spot, whether it is for spot nodes, and priority; values, where it stands in the values, if not by its name. */}}
{{- define "outrider.group" -}}
{{- include "outrider.checkTimes" . }}
{{- $pool := .pool }}
{{- $gpus := int (default 0 $pool.gpus) }}
{{- $claimed := and (gt $gpus 0) .root.Values.dra.enabled }}
{{- $image := include "outrider.poolImage" (dict "root" .root "gpus" $gpus) }}
{{- $selector := deepCopy ($pool.nodeSelector | default dict) }}
{{- if and $pool.gpuProduct (gt $gpus 0) (not $claimed) }}
{{- $_ := set $selector "nvidia.com/gpu.product" $pool.gpuProduct }}
{{- end }}
{{- if .spot }}
{{- $_ := set $selector "outrider/spot" "true" }}
{{- end }}
{{- $tolerations := list }}
{{- if gt $gpus 0 }}
{{- $tolerations = append $tolerations (dict "key" "nvidia.com/gpu" "operator" "Exists" "effect" "NoSchedule") }}
{{- end }}
{{- $tolerations = concat $tolerations ($pool.tolerations | default list) }}
{{- if .spot }}
{{- $tolerations = append $tolerations (dict "key" "outrider/spot" "operator" "Exists" "effect" "NoSchedule") }}
{{- end -}}
groupName: {{ .name }}
minReplicas: {{ int $pool.minReplicas }}
maxReplicas: {{ int $pool.maxReplicas }}
idleTimeoutSeconds: {{ int $pool.idleTimeoutSeconds }}
{{- if .spot }}
priority: {{ int .priority }}
{{- end }}
labels:
  outrider/role: {{ .role }}
  {{- with $pool.acceleratorType }}
  ray.io/accelerator-type: {{ . | quote }}
  {{- end }}
  {{- if .spot }}
  ray.io/market-type: spot
  {{- end }}
{{- if $claimed }}
# Ray does not see claims.
resources:
  GPU: {{ $gpus | toString | quote }}
{{- end }}
rayStartParams:
  object-store-memory: {{ $pool.objectStoreMemory | quote }}
template:
  metadata:
    labels:
      {{- include "outrider.labels" .role | nindent 6 }}
    {{- with $pool.podAnnotations }}
    annotations:
      {{- toYaml . | nindent 6 }}
    {{- end }}
  spec:
    serviceAccountName: outrider-worker
    automountServiceAccountToken: false
    # At least preStop (5) + drain + 15.
    terminationGracePeriodSeconds: {{ int $pool.terminationGracePeriodSeconds }}
    {{- include "outrider.pullSecrets" .root | nindent 4 }}
    {{- if and .root.Values.priorityClass.enabled (ne .role "draft") }}
    priorityClassName: outrider-serving
    {{- end }}
    securityContext:
      {{- include "outrider.podSecurity" 1000 | nindent 6 }}
    {{- with $selector }}
    nodeSelector:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with $tolerations }}
    tolerations:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with $pool.affinity }}
    affinity:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- if $claimed }}
    resourceClaims:
      - {name: gpus, resourceClaimTemplateName: {{ .claims }}}
    {{- end }}
    {{- if ne $pool.spread "none" }}
    topologySpreadConstraints:
      - maxSkew: 1
        topologyKey: kubernetes.io/hostname
        {{- if eq $pool.spread "require" }}
        minDomains: 2
        whenUnsatisfiable: DoNotSchedule
        nodeTaintsPolicy: Honor
        {{- else }}
        whenUnsatisfiable: ScheduleAnyway
        {{- end }}
        labelSelector:
          matchLabels:
            {{- include "outrider.labels" .role | nindent 12 }}
        # The operator's label: an old cluster does not count, it goes.
        matchLabelKeys: [ray.io/cluster]
    {{- end }}
    initContainers:
      # A replica whose model is missing fails three times and stays down; so its pod waits.
      - name: wait-for-models
        image: {{ $image | quote }}
        command: [/bin/bash, -c]
        args:
          - |
            for source in $SOURCES; do
              until [ -e "/models/${source##*/}/.complete" ]; do
                echo "waiting for /models/${source##*/}/.complete"
                sleep 5
              done
            done
        env:
          - name: SOURCES
            valueFrom: {configMapKeyRef: {name: outrider-models, key: sources}}
        resources:
          requests: {cpu: 50m, memory: 64Mi}
          limits: {cpu: 50m, memory: 64Mi}
        securityContext:
          {{- include "outrider.containerSecurity" . | nindent 10 }}
        volumeMounts:
          - {name: models, mountPath: /models, readOnly: true}
    containers:
      - name: ray-worker
        image: {{ $image | quote }}
        ports:
          - {name: metrics, containerPort: 8080}
          - {name: serve, containerPort: 8000}
          - {name: serve-grpc, containerPort: 9000}
        env:
          {{- include "outrider.env" (int $pool.drainSeconds) | nindent 10 }}
          - {name: HF_HUB_OFFLINE, value: "1"}
          - name: OUTRIDER_INTERNAL_TOKEN
            valueFrom: {secretKeyRef: {name: outrider-internal-token, key: token}}
          {{- with $pool.extraEnv }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        lifecycle:
          # Until the pod has left the endpoints everywhere.
          preStop: {exec: {command: [sleep, "5"]}}
        resources:
          {{- $asked := pick $pool "cpu" "cpuLimit" "memory" }}
          {{- if $claimed }}
          claims: [{name: gpus}]
          {{- else if gt $gpus 0 }}
          {{- $_ := set $asked "gpus" $gpus }}
          {{- end }}
          {{- include "outrider.resources" $asked | nindent 10 }}
        securityContext:
          {{- include "outrider.containerSecurity" . | nindent 10 }}
        volumeMounts:
          {{- include "outrider.scratchMounts" . | nindent 10 }}
          - {name: models, mountPath: /models, readOnly: true}
          {{- if eq .role "ingress" }}
          - {name: api-keys, mountPath: /etc/outrider/keys, readOnly: true}
          {{- end }}
    volumes:
      {{- include "outrider.scratchVolumes" $pool.sharedMemory | nindent 6 }}
      - {name: models, persistentVolumeClaim: {claimName: {{ include "outrider.modelsClaim" .root | quote }}, readOnly: true}}
      {{- if eq .role "ingress" }}
      - {name: api-keys, secret: {secretName: outrider-api-keys}}
      {{- end }}
{{- end }}
