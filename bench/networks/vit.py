"""Writes fixtures/networks/vit-*.json, and the steps of a vision transformer in steps.json, as golden.py does.

    pip install torch torchvision timm open_clip_torch transformers
    python bench/networks/vit.py

Small vision transformers of each library, in f64, with weights by formula.py for the names that the library's files have.
`gradient_dots` are the products of each gradient and the tensor "gradient of " + its name: with the norms, they tell
errors of direction.
"""

import json
from functools import partial

import torch
from timm.layers import SwiGLUPacked, resample_abs_pos_embed
from timm.models.eva import Eva
from timm.models.vision_transformer import VisionTransformer
from torch import nn

import formula
from golden import FIXTURES, rounded
from steps import measured


class Timm(VisionTransformer):
    """timm's transformer with our outputs: `output` of the normalised tokens, `projection`, `head`."""

    def __init__(self, output, dimensions, projection=0, **kwargs):
        kind = {"attention": "map", "mean": "avg"}.get(output, "token")
        super().__init__(num_classes=0, global_pool=kind, fc_norm=False, **kwargs)
        self.output, features = output, kwargs["embed_dim"] * (2 if output == "class_and_mean" else 1)
        self.proj = nn.Linear(features, projection, bias=False) if projection else nn.Identity()
        self.head = nn.Linear(projection or features, dimensions) if dimensions else nn.Identity()

    def forward(self, x):
        x = self.forward_features(x)
        mean = x[:, self.num_prefix_tokens:].mean(1)
        if self.output == "class":
            x = x[:, 0]
        elif self.output == "mean":
            x = mean
        elif self.output == "attention":
            x = self.attn_pool(x)
        else:
            x = torch.cat([x[:, 0], mean], 1)
        return [self.head(self.proj(x))]


class Only(nn.Module):
    """The features of a library's tower."""

    def __init__(self, tower, features):
        super().__init__()
        self.tower, self.features = tower, features

    def forward(self, x):
        return [self.features(self.tower, x)]


def fill(network, called):
    """The network in f64 with tensors by the formula; names and shapes of the file."""
    network, shapes = network.double(), {}
    for name, value in network.state_dict().items():
        if value.is_floating_point():
            name = called(name)
            shapes[name] = list(value.shape)
            value.copy_(torch.from_numpy(formula.tensor(name, value.shape)))
    return shapes


class DinoV3(Eva):
    """timm's DINOv3 with our `head`."""

    def __init__(self, dimensions, size, bias, **more):
        norm = partial(nn.LayerNorm, eps=1e-5)
        rope = {"use_rot_pos_emb": True, "rope_type": "dinov3", "rope_temperature": 100, "rope_rotate_half": True}
        super().__init__(img_size=size, num_classes=0, global_pool="token", qkv_bias=bias, init_values=1e-5,
                         use_abs_pos_emb=False, num_reg_tokens=4, use_fc_norm=False, norm_layer=norm, **rope, **SMALL, **more)
        self.head = nn.Linear(SMALL["embed_dim"], dimensions) if dimensions else nn.Identity()

    def forward(self, x):
        return [self.head(self.forward_features(x)[:, 0])]


def signed(name, shape):
    return torch.from_numpy(2 * formula.unit(name, torch.Size(shape).numel()).reshape(tuple(shape)) - 1)


def write(name, network, shape, called=lambda name: name, gradients=False, positions=None):
    """`positions`: the side of the grid of patches of the file, if it is another one than that of the images."""
    tensors = fill(network, called)
    if positions:
        grid = network.patch_embed.grid_size
        tensors["pos_embed"][1] += positions ** 2 - grid[0] * grid[1]
        file = torch.from_numpy(formula.tensor("pos_embed", tensors["pos_embed"]))
        prefix = 0 if network.no_embed_class else network.num_prefix_tokens
        network.pos_embed.data.copy_(resample_abs_pos_embed(file, list(grid), num_prefix_tokens=prefix))
    x = signed("input", shape)
    outputs = network.eval()(x)
    golden = {"tensors": tensors, "input": shape, "evaluation": [rounded(y.detach()) for y in outputs]}
    if gradients:
        golden["training"] = golden["evaluation"]
        sum((y * signed("cotangent", y.shape)).sum() for y in outputs).backward()
        named = [(called(n), p.grad) for n, p in network.named_parameters()]
        golden["gradient_norms"] = {n: float(f"{g.norm().item():.9g}") for n, g in named}
        dots = {n: (g * signed("gradient of " + n, g.shape)).sum().item() for n, g in named}
        golden["gradient_dots"] = {n: float(f"{dot:.9g}") for n, dot in dots.items()}
    path = FIXTURES / f"{name}.json"
    path.write_text(json.dumps(golden, separators=(",", ":")) + "\n")
    print(f"{path.name}: {path.stat().st_size} bytes, outputs {[list(y.shape) for y in outputs]}")


SMALL = {"embed_dim": 32, "depth": 2, "num_heads": 2}


def plain(size, patch, depth=2, output="class", dimensions=8, **more):
    return Timm(output, dimensions, img_size=size, patch_size=patch, **{**SMALL, "depth": depth, **more})


DINO = {"init_values": 1e-5, "reg_tokens": 4, "no_embed_class": True}
CLIP = {"pre_norm": True, "norm_layer": lambda width, **more: nn.LayerNorm(width, eps=1e-5, **more), "act_layer": "quick_gelu"}
SIGLIP = {"class_token": False, "act_layer": "gelu_tanh"}


def of_timm():
    write("vit-98", plain(98, 14, depth=3), [2, 3, 98, 98], gradients=True)
    write("vit-224", plain(224, 16), [1, 3, 224, 224], gradients=True)
    write("vit-32", plain(224, 32, output="mean"), [2, 3, 224, 224], gradients=True)
    write("vit-dinov2", plain(98, 14, output="class_and_mean", **DINO), [2, 3, 98, 98], gradients=True)
    write("vit-interpolated", plain(98, 14, output="class_and_mean", init_values=1e-5), [2, 3, 98, 98], positions=37)
    write("vit-enlarged", plain((56, 42), 14, output="class", dimensions=0), [2, 3, 56, 42], positions=2)
    write("vit-dinov3", DinoV3(8, (64, 96), True), [2, 3, 64, 96], gradients=True)
    gated = {"swiglu_mlp": True, "swiglu_align_to": 8, "mlp_ratio": 2.5}
    write("vit-dinov3-gated", DinoV3(8, (64, 96), True, **gated), [2, 3, 64, 96], gradients=True)
    giant = {"mlp_layer": SwiGLUPacked, "act_layer": nn.SiLU, "mlp_ratio": 5}
    write("vit-dinov2-gated", plain(98, 14, **DINO, **giant), [2, 3, 98, 98], gradients=True)
    write("vit-dinov3-without-biases", DinoV3(0, (64, 64), False), [2, 3, 64, 64])
    write("vit-clip", plain(56, 14, projection=12, **CLIP), [2, 3, 56, 56], gradients=True)
    siglip_network = plain(56, 14, output="attention", dimensions=0, **SIGLIP)
    write("vit-siglip", siglip_network, [2, 3, 56, 56], called=lambda name: "visual.trunk." + name)
    write("vit-siglip-gradients", plain(56, 14, output="attention", **SIGLIP), [2, 3, 56, 56], gradients=True)


def without_mask(tower):
    """Files may have a mask token, which is only for training."""
    del tower.embeddings._parameters["mask_token"]
    tower.embeddings.mask_token = None
    return tower


def of_others():
    from open_clip.transformer import QuickGELU, VisionTransformer as OpenClip
    from torchvision.models.vision_transformer import VisionTransformer as TorchVision
    from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection, Dinov2WithRegistersConfig
    from transformers import DINOv3ViTConfig, DINOv3ViTModel
    from transformers import Dinov2WithRegistersModel, SiglipVisionConfig, SiglipVisionModel, ViTConfig, ViTModel

    norm = lambda width: nn.LayerNorm(width, eps=1e-6)  # noqa: E731
    tower = TorchVision(64, 16, 2, 2, 32, 64, norm_layer=norm)
    tower.heads = nn.Identity()
    without = lambda name: name.removeprefix("tower.")  # noqa: E731
    write("vit-torchvision", Only(tower, lambda m, x: m(x)), [2, 3, 64, 64], without)
    tower = OpenClip(56, 14, 32, 2, 2, 4.0, output_dim=12, act_layer=QuickGELU)
    visual = lambda name: "visual." + without(name)  # noqa: E731
    write("vit-clip-openai", Only(tower, lambda m, x: m(x)), [2, 3, 56, 56], visual)

    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "patch_size": 14,
             "attn_implementation": "eager"}
    config = CLIPVisionConfig(image_size=56, intermediate_size=128, projection_dim=12, **small)
    tower = CLIPVisionModelWithProjection(config)
    write("vit-clip-hf", Only(tower, lambda m, x: m(x).image_embeds), [2, 3, 56, 56], without)
    tower = SiglipVisionModel(SiglipVisionConfig(image_size=56, intermediate_size=128, **small))
    # Published files name the tower.
    called = lambda name: "vision_model." + without(name).removeprefix("vision_model.")  # noqa: E731
    write("vit-siglip-hf", Only(tower, lambda m, x: m(x).pooler_output), [2, 3, 56, 56], called)

    def published(name):
        """transformers 5 has other names in memory than in the files of Hugging Face."""
        name = without(name).removeprefix("vit.")
        for part, of_file in (("q_proj", "attention.query"), ("k_proj", "attention.key"), ("v_proj", "attention.value"),
                              ("o_proj", "output.dense")):
            name = name.replace(f"attention.{part}", f"attention.{of_file}")
        if name.startswith("layers."):
            name = "encoder.layer." + name.removeprefix("layers.")
            name = name.replace("mlp.fc1", "intermediate.dense").replace("mlp.fc2", "output.dense")
        return name

    tower = without_mask(Dinov2WithRegistersModel(Dinov2WithRegistersConfig(image_size=98, **small)))
    write("vit-dinov2-hf", Only(tower, lambda m, x: m(x).pooler_output), [2, 3, 98, 98], published)
    config = DINOv3ViTConfig(image_size=64, intermediate_size=128, num_register_tokens=4, **{**small, "patch_size": 16})
    tower = without_mask(DINOv3ViTModel(config))
    # Published files have the blocks at the top.
    called = lambda name: without(name).removeprefix("model.")  # noqa: E731
    write("vit-dinov3-hf", Only(tower, lambda m, x: m(x).pooler_output), [2, 3, 64, 64], called)
    config.use_gated_mlp, config.hidden_act, config.intermediate_size = True, "silu", 80
    tower = without_mask(DINOv3ViTModel(config))
    write("vit-dinov3-gated-hf", Only(tower, lambda m, x: m(x).pooler_output), [2, 3, 64, 64], called)
    config = Dinov2WithRegistersConfig(image_size=98, use_swiglu_ffn=True, **small)
    tower = without_mask(Dinov2WithRegistersModel(config))
    write("vit-dinov2-gated-hf", Only(tower, lambda m, x: m(x).pooler_output), [2, 3, 98, 98], published)
    tower = ViTModel(ViTConfig(image_size=56, intermediate_size=128, layer_norm_eps=1e-6, **small), add_pooling_layer=False)
    write("vit-hf", Only(tower, lambda m, x: m(x).last_hidden_state[:, 0]), [2, 3, 56, 56], published)


def steps():
    path = FIXTURES / "steps.json"
    golden = json.loads(path.read_text())
    golden["vit-98"] = measured(plain(98, 14, depth=3), [4, 3, 98, 98], 1e-2)
    golden["vit-dinov2"] = measured(plain(98, 14, output="class_and_mean", **DINO), [4, 3, 98, 98], 1e-2)
    golden["vit-dinov3"] = measured(DinoV3(8, (64, 96), True), [4, 3, 64, 96], 1e-2)
    golden["vit-clip"] = measured(plain(56, 14, projection=12, **CLIP), [4, 3, 56, 56], 1e-2)
    golden["vit-siglip-gradients"] = measured(plain(56, 14, output="attention", **SIGLIP), [4, 3, 56, 56], 1e-2)
    path.write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    torch.manual_seed(0)
    of_timm()
    of_others()
    steps()
