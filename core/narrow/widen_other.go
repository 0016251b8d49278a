//go:build !amd64

package narrow

// kernels lists the kernels that this processor runs, the best first.
func kernels() []kernel { return []kernel{portable} }
