module phaselock.test/definitions

go 1.26.0

// Only their files are read, nothing is built from them: definitions of the kinds of the Prometheus operator and of KEDA.
require (
	github.com/kedacore/keda/v2 v2.21.0
	github.com/prometheus-operator/prometheus-operator v0.85.0
)
