module freshgo

go 1.25.0

require (
	github.com/golang/protobuf v1.5.4
	github.com/mattn/go-pointer v0.0.1
	github.com/stretchr/testify v1.12.1
	golang.org/x/sys v0.44.0
	google.golang.org/protobuf v1.36.11
	gorgonia.org/cu v0.9.6
)

require (
	github.com/google/uuid v1.1.1 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
)
