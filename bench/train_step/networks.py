"""The networks of `run.py` in PyTorch, with the parameter names of this project's PyTorch files."""

import torch
from torch import nn
from torch.nn import functional as F

from golden import BnInception, EfficientNet, ResNet, Torchvision

__all__ = ["BnInception", "ConvBlocks", "EfficientNet", "MobileNetV2MxNet", "ResNet", "Torchvision", "VisionTransformer"]


class ConvBlocks(nn.Module):
    """4 x [convolution 3x3 of 64 channels, batch norm, ReLU, max pool 2x2] on 28 x 28, and a linear layer."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList()
        for inputs in (1, 64, 64, 64):
            block = nn.Module()
            block.conv = nn.Conv2d(inputs, 64, 3, padding=1, bias=False)
            block.norm = nn.BatchNorm2d(64)
            self.blocks.append(block)
        self.head = nn.Linear(64, 128)

    def forward(self, x):
        for block in self.blocks:
            x = F.max_pool2d(F.relu(block.norm(block.conv(x)), inplace=True), 2)
        return [self.head(x.flatten(1))]


class MobileNetV2MxNet(nn.Module):
    """MXNet's layout: ReLU, stride 2 at blocks 1, 3, 10 and 13, three convolutions in the first block too."""

    GROUPS = [(1, 16, 1), (6, 24, 2), (6, 32, 3), (6, 64, 4), (6, 96, 3), (6, 160, 3), (6, 320, 1)]

    def __init__(self):
        super().__init__()
        self.conv0, self.batchnorm0 = nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32)
        channels, self.blocks = 32, []
        for expansion, out, count in self.GROUPS:
            for _ in range(count):
                index, inside = len(self.blocks), expansion * channels
                stride = 2 if index in (1, 3, 10, 13) else 1
                block = nn.Module()
                block.conv0 = nn.Conv2d(channels, inside, 1, bias=False)
                block.conv1 = nn.Conv2d(inside, inside, 3, stride, 1, groups=inside, bias=False)
                block.conv2 = nn.Conv2d(inside, out, 1, bias=False)
                for i, width in enumerate((inside, inside, out)):
                    block.add_module(f"batchnorm{i}", nn.BatchNorm2d(width))
                self.add_module(f"linearbottleneck{index}", block)
                self.blocks.append((block, stride == 1 and channels == out))
                channels = out
        self.conv1, self.batchnorm1 = nn.Conv2d(channels, 1280, 1, bias=False), nn.BatchNorm2d(1280)

    def forward(self, x):
        x = F.relu(self.batchnorm0(self.conv0(x)), inplace=True)
        for block, residual in self.blocks:
            y = F.relu(block.batchnorm0(block.conv0(x)), inplace=True)
            y = F.relu(block.batchnorm1(block.conv1(y)), inplace=True)
            y = block.batchnorm2(block.conv2(y))
            x = x + y if residual else y
        return [F.relu(self.batchnorm1(self.conv1(x)), inplace=True).mean((2, 3))]


class VisionTransformer(nn.Module):
    """ViT-S/16 with class token and a linear layer, as in timm; attention by `scaled_dot_product_attention`."""

    def __init__(self, width=384, depth=12, heads=6, patch=16, side=224, dimensions=128):
        super().__init__()
        self.heads, count = heads, (side // patch) ** 2
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + count, width))
        self.patch_embed = nn.Module()
        self.patch_embed.proj = nn.Conv2d(3, width, patch, patch)
        self.blocks = nn.ModuleList()
        for _ in range(depth):
            block = nn.Module()
            block.attn, block.mlp = nn.Module(), nn.Module()
            block.norm1, block.norm2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
            block.attn.qkv, block.attn.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            block.mlp.fc1, block.mlp.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.blocks.append(block)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, dimensions)

    def attention(self, block, x):
        n, count, width = x.shape
        q, k, v = block.attn.qkv(x).reshape(n, count, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        x = F.scaled_dot_product_attention(q, k, v)
        return block.attn.proj(x.transpose(1, 2).reshape(n, count, width))

    def forward(self, x):
        x = self.patch_embed.proj(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1) + self.pos_embed
        for block in self.blocks:
            x = x + self.attention(block, block.norm1(x))
            x = x + block.mlp.fc2(F.gelu(block.mlp.fc1(block.norm2(x))))
        return [self.head(self.norm(x)[:, 0])]
