package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	device "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const gpuSocket = "fake-gpus.sock"

// gpuPlugin is a device plugin with fake GPUs: a container gets their names in a variable, as with NVIDIA's plugin.
type gpuPlugin struct {
	device.UnimplementedDevicePluginServer
	count int
}

func (plugin gpuPlugin) GetDevicePluginOptions(context.Context, *device.Empty) (*device.DevicePluginOptions, error) {
	return &device.DevicePluginOptions{}, nil
}

func (plugin gpuPlugin) ListAndWatch(
	_ *device.Empty, stream grpc.ServerStreamingServer[device.ListAndWatchResponse],
) error {
	devices := []*device.Device{}
	for number := range plugin.count {
		devices = append(devices, &device.Device{ID: fmt.Sprintf("fake-%d", number), Health: device.Healthy})
	}
	if err := stream.Send(&device.ListAndWatchResponse{Devices: devices}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (plugin gpuPlugin) Allocate(
	_ context.Context, request *device.AllocateRequest,
) (*device.AllocateResponse, error) {
	response := &device.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		names := fmt.Sprint(container.DevicesIds)
		variables := map[string]string{"NVIDIA_VISIBLE_DEVICES": names[1 : len(names)-1]}
		response.ContainerResponses = append(
			response.ContainerResponses, &device.ContainerAllocateResponse{Envs: variables},
		)
	}
	return response, nil
}

// runGPUs registers the fake GPUs at kubelet and serves until it is killed.
func runGPUs() error {
	count, err := strconv.Atoi(os.Args[1])
	if err != nil {
		return err
	}
	listener, err := net.Listen("unix", device.DevicePluginPath+gpuSocket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	device.RegisterDevicePluginServer(server, gpuPlugin{count: count})
	failed := make(chan error)
	go func() { failed <- server.Serve(listener) }()
	kubelet, err := grpc.NewClient(
		"unix://"+device.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()),
	)
	if err != nil {
		return err
	}
	registration := &device.RegisterRequest{
		Version: device.Version, Endpoint: gpuSocket, ResourceName: "nvidia.com/gpu",
	}
	if _, err := device.NewRegistrationClient(kubelet).Register(context.Background(), registration); err != nil {
		return err
	}
	return <-failed
}
